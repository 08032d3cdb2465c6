"""Modules that draw random numbers: refused, unless the function that they compute is fixed."""

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from gnlib import condition_number
from tests.gnlib.jacobian.helpers import (
    HELD,
    D,
    DropPath,
    K,
    N,
    Net,
    ViT,
    assert_refused,
    assert_right,
    data,
    made,
)

RANDOM = "change from call to call: a random function has no Jacobian"


class StochasticDepth(nn.Module):
    """As in torchvision: a sample (row) or the whole batch is dropped."""

    def __init__(self, p, mode):
        super().__init__()
        self.p, self.mode = p, mode

    def forward(self, x):
        if not self.training or self.p == 0:
            return x
        size = [x.shape[0] if self.mode == "row" else 1] + [1] * (x.ndim - 1)
        noise = torch.empty(size, dtype=x.dtype, device=x.device).bernoulli_(1 - self.p)
        return x * noise.div_(1 - self.p)


class ReZero(nn.Module):
    def __init__(self):
        super().__init__()
        self.alpha, self.head, self.body = nn.Parameter(torch.zeros(())), nn.Linear(D, K), nn.Linear(D, D)

    def forward(self, x):
        return self.head(x + self.alpha * functional.dropout(self.body(x).tanh(), 0.1, self.training))


class Lazily(nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.head = None, nn.Linear(D, K)

    def forward(self, x):
        if self.features is None:
            self.features = torch.randn(D, D)
        return self.head((x @ self.features).cos())


def layer_drop(draw, p=0.1):
    return lambda self, h: h if draw(self) < p else h + h.sin()


def always(p):
    return lambda self, h: functional.dropout(h, p, True)


def counting(self, h):
    self.calls += 1
    return h * self.calls


RANDOM_MODULES = {
    "stochastic depth, rows": lambda: Net(lambda self, h: h + self.drop(h.sin()), drop=StochasticDepth(0.1, "row")),
    "stochastic depth, batch": lambda: Net(lambda self, h: h + self.drop(h.sin()), drop=StochasticDepth(0.1, "batch")),
    "stochastic depth, rarely": lambda: Net(
        lambda self, h: h + self.drop(h.sin()), drop=StochasticDepth(1e-4, "batch"), zero_head=True
    ),
    "drop path": lambda: Net(lambda self, h: h + self.drop(h.sin()), drop=DropPath(0.1)),
    "vision transformer": lambda: ViT(0.2),
    "re-zero": ReZero,
    "dropout, functional": lambda: Net(always(0.5)),
    "dropout, functional, zero head": lambda: Net(always(0.5), zero_head=True),
    "layer drop, Python": lambda: Net(layer_drop(lambda self: random.random())),
    "layer drop, NumPy": lambda: Net(layer_drop(lambda self: np.random.rand())),  # noqa: NPY002
    "layer drop, torch": lambda: Net(layer_drop(lambda self: torch.rand(()), 1e-3)),
    "layer drop, normal": lambda: Net(layer_drop(lambda self: torch.randn(()), -4.0)),
    "layer drop, own generator": lambda: Net(
        layer_drop(lambda self: torch.rand((), generator=self.own)), own=torch.Generator().manual_seed(1)
    ),
    "layer drop, own generator of NumPy": lambda: Net(
        layer_drop(lambda self: self.own.random()), own=np.random.default_rng(0)
    ),
    "layer drop, own generator of Python": lambda: Net(
        layer_drop(lambda self: self.own.random()), own=random.Random(0)
    ),
    "layer drop, generator held elsewhere": lambda: Net(layer_drop(lambda self: torch.rand((), generator=HELD))),
    "noise of the system": lambda: Net(lambda self, h: h * random.SystemRandom().random()),
    "from ten samples on": lambda: Net(lambda self, h: h if len(h) < 10 else h * (torch.rand(()) < 0.99)),
    "reparametrised": lambda: Net(lambda self, h: h + torch.randn_like(h) * (h - 4).exp(), zero_head=True),
    "gumbel": lambda: Net(lambda self, h: functional.gumbel_softmax(h), zero_head=True),
    "rrelu": lambda: Net(lambda self, h: self.act(h), act=nn.RReLU(), zero_head=True),
    "fractional pooling": lambda: Net(
        lambda self, h: self.pool(h.view(-1, 1, 2, 3)).flatten(1).repeat(1, D),
        pool=nn.FractionalMaxPool2d(1, output_size=1),
        zero_head=True,
    ),
    "permuted": lambda: Net(lambda self, h: h[:, torch.randperm(D)], zero_head=True),
    "drawn at the first call": Lazily,
    "counts its calls": lambda: Net(counting, calls=0),
}


@pytest.mark.parametrize("mode", [None, "train"])
@pytest.mark.parametrize("name", RANDOM_MODULES)
def test_random_functions_are_refused(name, mode):
    for n in (N,) if "ten" in name else (N, 1):
        assert_refused(made(RANDOM_MODULES[name]), data(n), RANDOM, mode=mode)


@pytest.mark.parametrize("name", [n for n in RANDOM_MODULES if n.startswith(("stoch", "drop path", "vision", "re-z"))])
def test_what_is_random_in_training_is_right_in_evaluation(name):
    net = made(RANDOM_MODULES[name])
    assert_refused(net, data(4), "or pass mode='eval'")
    assert_right(net, data(8), copy.deepcopy(net).eval(), mode="eval")


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", ["stochastic depth, rows", "stochastic depth, batch", "drop path"])
def test_stochastic_depth_is_refused_whatever_the_seed(name, seed):
    net = made(RANDOM_MODULES[name], seed)
    torch.manual_seed(seed)
    assert_refused(net, data(seed=seed), RANDOM, mode="train")


@pytest.mark.parametrize("seed", range(6))
def test_dropout_under_a_zero_head_is_refused_whatever_the_seed(seed):
    net = made(RANDOM_MODULES["dropout, functional, zero head"], seed)
    torch.manual_seed(seed)
    with pytest.raises(ValueError, match=RANDOM):
        condition_number(net, data(seed=seed))


def seeded(self, h):
    torch.manual_seed(0)
    return h + torch.randn(D)


FIXED_NOISE = {
    "drawn but not used": lambda: Net(layer_drop(lambda self: torch.rand(()), 0.0)),
    "drawn and multiplied by nothing": lambda: Net(lambda self, h: h + 0.0 * torch.rand_like(h)),
    "own seed": lambda: Net(lambda self, h: h + torch.randn(D, generator=torch.Generator().manual_seed(0))),
    "global seed": lambda: Net(seeded),
    "depth of probability 0": lambda: Net(lambda self, h: h + self.drop(h.sin()), drop=StochasticDepth(0.0, "row")),
}


@pytest.mark.parametrize("name", FIXED_NOISE)
def test_noise_that_does_not_matter_or_is_fixed_is_accepted(name):
    net = made(FIXED_NOISE[name])
    meant = copy.deepcopy(net)
    if name == "global seed":
        torch.manual_seed(0)
        noise = torch.randn(D, dtype=torch.float64)
        meant.between = lambda self, h: h + noise
    if name == "own seed":
        noise = torch.randn(D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        meant.between = lambda self, h: h + noise
    assert_right(net, data(8), meant)

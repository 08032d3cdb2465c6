"""Modules that draw random numbers: refused, unless the function that they compute is fixed."""

import copy
import cProfile
import pickle
import random
import sys
import time

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
    message = "and so does calls of module" if name == "counts its calls" else RANDOM
    for n in (N,) if "ten" in name else (N, 1):
        assert_refused(made(RANDOM_MODULES[name]), data(n), message, mode=mode)


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


# Generators that no module holds: of this file, in a dictionary, in an object, in another file, in a closure

OWN, OLD, PLAIN = np.random.default_rng(0), np.random.RandomState(0), random.Random(0)
BY_NAME, IN_A_LIST = {"drop": np.random.default_rng(1), "noise": random.Random(1)}, [np.random.default_rng(2)]


class Source:
    """An object with a generator, which is no module."""

    def __init__(self, generator):
        self.generator = generator


SOURCE, MODULE = Source(random.Random(3)), type(random)("of_another_file")
MODULE.stream = np.random.default_rng(4)


def in_a_closure():
    stream = np.random.default_rng(5)
    return layer_drop(lambda self: stream.random(), 0.02)


def drawn_from_a_name(self, h):
    return h if BY_NAME["drop"].random() < 0.02 else h + h.sin()


def drawn_from_a_list(self, h):
    return h if IN_A_LIST[0].random() < 0.02 else h + h.cos()


def drawn_from_an_object(self, h):
    return h if SOURCE.generator.random() < 0.02 else h + h.exp()


def drawn_from_another_file(self, h):
    return h if MODULE.stream.random() < 0.02 else h - h.sin()


def drawn_by_a_helper():
    return OLD.rand() < 0.02


HELD_NOWHERE = {
    "of this file": lambda: Net(lambda self, h: h if OWN.random() < 0.02 else 2 * h),
    "of this file, old": lambda: Net(lambda self, h: h if drawn_by_a_helper() else 3 * h),
    "of this file, Python": lambda: Net(lambda self, h: h if PLAIN.random() < 0.02 else h.sin()),
    "in a dictionary": lambda: Net(drawn_from_a_name),
    "in a list": lambda: Net(drawn_from_a_list),
    "in an object": lambda: Net(drawn_from_an_object),
    "in another file": lambda: Net(drawn_from_another_file),
    "in a closure": lambda: Net(in_a_closure()),
    "in an object of the module": lambda: Net(
        lambda self, h: h if self.source.generator.random() < 0.02 else h.cos(), source=Source(random.Random(6))
    ),
}


@pytest.mark.parametrize("name", HELD_NOWHERE)
def test_generators_that_no_module_holds_are_seen_and_put_back(name):
    streams = OWN, PLAIN, *BY_NAME.values(), *IN_A_LIST, SOURCE.generator, MODULE.stream
    states = [pickle.dumps(stream) for stream in streams]
    for seed in range(4):  # a layer is left out in one call of fifty
        assert_refused(made(HELD_NOWHERE[name], seed), data(seed=seed), RANDOM)
    assert [pickle.dumps(stream) for stream in streams] == states


# States that a trial of a few calls cannot see, and the matrix does


class Counter(nn.Module):
    """Every so many calls something else."""

    def __init__(self, period):
        super().__init__()
        self.body, self.head, self.calls = nn.Linear(D, D), nn.Linear(D, K), [0]
        self.period = period

    def forward(self, x):
        kept = torch.zeros(len(x), D, dtype=x.dtype).add_(self.body(x))  # in place, so that samples go one by one
        self.calls[0] += 1
        return self.head(kept.tanh() * (2 if self.calls[0] % self.period == 0 else 1))


@pytest.mark.parametrize("period", [11, 20, 33, 47])
def test_every_call_that_the_matrix_is_made_in_is_compared(period):
    assert_refused(made(lambda: Counter(period)), data(), "outputs change from call to call")


def cached(self, h):
    self.seen.append(float(h.detach().sum()))
    return h + 1e-3 * len(self.seen)


def scheduled(self, h):
    self.warm = min(self.warm + 0.1, 50.0)
    return h * self.warm


def last_of_all(self, h):
    before, self.last = self.last, h.detach().mean(0)
    return h + before


def named(self, h):
    self.phase = "odd" if self.phase == "even" else "even"
    return h if self.phase == "even" else h.sin()


STATES = {
    "a cache that grows": (lambda: Net(cached, seen=[]), "so does seen of module"),
    "a schedule": (lambda: Net(scheduled, warm=0.0), "so does warm of module"),
    "every third": (
        lambda: Net(lambda self, h: (setattr(self, "t", self.t + 1), h * (1 + (self.t % 3 == 0)))[1], t=0),
        "so does t of module",
    ),
    "a phase": (lambda: Net(named, phase="even"), "so does phase of module"),
    "the last outputs": (lambda: Net(last_of_all, last=torch.zeros(D)), "change from call to call"),
    "the clock": (lambda: Net(lambda self, h: h * (time.perf_counter() % 1)), "change from call to call"),
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_is_named_where_outputs_change_with_it(name):
    make, message = STATES[name]
    assert_refused(made(make), data(10), message)


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


def test_a_network_can_be_profiled():
    """Generators are looked for by the hook of profilers, of which there is one."""
    net, profile = made(lambda: nn.Linear(D, K)), cProfile.Profile()
    expected = condition_number(net, data(5)).value

    def afterwards():
        return True

    with profile:
        found = condition_number(net, data(5)).value
        afterwards()
    assert found == expected and any(entry.code is afterwards.__code__ for entry in profile.getstats())
    assert sys.getprofile() is None

"""Losses that are functions: their constants in double precision, and what is refused because it is no function."""

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from gnlib import GaussNewton
from gnlib.losses import loss_of
from tests.gnlib.derivatives import assert_plain_derivatives

N, K = 6, 3
WEIGHTS = torch.tensor([1.0, 0.3, 3.1])
METRIC = torch.tensor([[2.0, 0.1, 0.0], [0.1, 1.0, 0.3], [0.0, 0.3, 1.7]])


def outputs(scale=1.0):
    return scale * torch.randn(N, K, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def numbers():
    return torch.randn(N, K, generator=torch.Generator().manual_seed(1))


CLASSES = torch.arange(N) % K


class Focal(nn.Module):
    """A module with a buffer in single precision, which indexes it and casts as under mixed precision."""

    def __init__(self):
        super().__init__()
        self.register_buffer("alpha", WEIGHTS.clone())

    def forward(self, f, y):
        logs = functional.log_softmax(f.float(), 1).gather(1, y[:, None])[:, 0]
        return -(self.alpha[y] * (0.1 + (1 - logs.exp())) * logs).mean()


def focal(f, y):
    logs = f.log_softmax(1).gather(1, y[:, None])[:, 0]
    return -(WEIGHTS.double()[y] * (0.1 + (1 - logs.exp())) * logs).mean()


def mahalanobis(f, y):
    r = f - y.double()
    return torch.einsum("na,ab,nb->", r, METRIC.double(), r) / N


LOSSES = {  # in single precision as they are written for training, and written out in double precision
    "weights of classes": (
        nn.CrossEntropyLoss(weight=WEIGHTS),
        CLASSES,
        lambda f, y: functional.cross_entropy(f, y, WEIGHTS.double()),
    ),
    "huber": (nn.HuberLoss(delta=0.7), numbers(), lambda f, y: functional.huber_loss(f, y.double(), delta=0.7)),
    "binary": (
        lambda f, y: functional.binary_cross_entropy(f.sigmoid(), y),
        numbers().sigmoid(),
        lambda f, y: functional.binary_cross_entropy_with_logits(f, y.double()),
    ),
    "weights of positives": (
        nn.BCEWithLogitsLoss(pos_weight=WEIGHTS),
        (numbers() > 0).float(),
        lambda f, y: functional.binary_cross_entropy_with_logits(f, y.double(), pos_weight=WEIGHTS.double()),
    ),
    "a metric": (lambda f, y: torch.einsum("na,ab,nb->", f - y, METRIC, f - y) / N, numbers(), mahalanobis),
    "a cast to half": (
        lambda f, y: functional.cross_entropy(f.to(torch.bfloat16), y),
        CLASSES,
        functional.cross_entropy,
    ),
    "buffers": (Focal(), CLASSES, focal),
    "a pair of targets": (
        lambda f, y: (y[1][:, None] * (f - y[0]).square()).sum() / N,
        (numbers(), torch.arange(1.0, N + 1) / 7),
        lambda f, y: ((torch.arange(1.0, N + 1) / 7).double()[:, None] * (f - y[0].double()).square()).sum() / N,
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_computed_in_double_precision(name):
    loss, y, plain = LOSSES[name]
    assert_plain_derivatives(loss, y, plain, outputs(), rtol=1e-11, atol=1e-13)


def test_a_loss_with_weights_is_that_of_the_network():
    torch.manual_seed(0)
    net, x = nn.Linear(4, K), torch.randn(N, 4)
    found = GaussNewton(net, x, CLASSES, nn.CrossEntropyLoss(weight=WEIGHTS)).forecast(rate=0.1, steps=5).losses
    net, losses = net.double(), []
    for _ in range(6):
        loss = functional.cross_entropy(net(x.double()), CLASSES, WEIGHTS.double())
        losses.append(loss.item())
        with torch.no_grad():
            for p, g in zip(net.parameters(), torch.autograd.grad(loss, [*net.parameters()]), strict=True):
                p -= 0.1 * g
    assert found.tolist() == pytest.approx(losses, rel=1e-12)


class Counted(nn.Module):
    """Count calls in a buffer, on which the loss does not depend."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, f, y):
        self.calls += 1
        return functional.mse_loss(f, y)


def test_a_loss_is_left_as_it_is():
    loss = Counted()
    assert loss_of(loss, numbers(), outputs()).root(outputs()).shape == (N, K, K)
    weighted = nn.CrossEntropyLoss(weight=WEIGHTS.clone())
    loss_of(weighted, CLASSES, outputs()).gradient(outputs())
    assert loss.calls == 0 and weighted.weight.dtype == torch.float32 == torch.get_default_dtype()


def seeded(f, y):
    """Random numbers that are the same at each call."""
    noise = torch.randn(y.shape, generator=torch.Generator().manual_seed(3))
    return functional.mse_loss(f, y + noise)


def test_noise_of_a_fixed_seed_is_none():
    noise = torch.randn(N, K, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    expected = functional.mse_loss(outputs(), numbers().double() + noise).item()
    assert loss_of(seeded, numbers(), outputs()).value(outputs()) == pytest.approx(expected, rel=1e-12)


GENERATOR, NOISE, LEARNT = torch.Generator().manual_seed(0), np.random.default_rng(0), nn.Linear(4, K)


class Centred(nn.Module):
    """A running centre of the outputs, as in self-distillation."""

    def __init__(self):
        super().__init__()
        self.register_buffer("centre", torch.zeros(K))

    def forward(self, f, y):
        value = functional.cross_entropy(f - self.centre, y)
        self.centre = 0.9 * self.centre + 0.1 * f.detach().mean(0)
        return value


class Temperature(nn.Module):
    def __init__(self):
        super().__init__()
        self.logit_scale = nn.Parameter(torch.zeros(()))

    def forward(self, f, y):
        return functional.cross_entropy(f * self.logit_scale.exp(), y)


def norm_of_parameters():
    return sum(p.square().sum() for p in LEARNT.parameters())


def spread(f, y):
    return functional.mse_loss(f, y) * (1 + 1e-3 * random.random())


NO_FUNCTIONS = {
    "label noise": (
        lambda f, y: functional.cross_entropy(f, torch.where(torch.rand(N) < 0.01, 0, y)),
        CLASSES,
        "draws random numbers",
    ),
    "noise of NumPy": (
        lambda f, y: functional.cross_entropy(f + torch.as_tensor(np.random.randn(N, K)), y),  # noqa: NPY002
        CLASSES,
        "draws random numbers",
    ),
    "noise of a generator": (
        lambda f, y: functional.mse_loss(f, y + torch.randn(y.shape, generator=GENERATOR)),
        numbers(),
        "draws random numbers",
    ),
    "a running centre": (Centred(), CLASSES, "changes from call to call"),
    "a temperature": (Temperature(), CLASSES, "depends on logit_scale beside the outputs"),
    "a penalty": (
        lambda f, y: functional.mse_loss(f, y) + 0.1 * norm_of_parameters(),
        numbers(),
        r"depends on a tensor of shape \(3, 4\) and .* pass optimizer=torch.optim.SGD\(..., weight_decay=...\)",
    ),
    "an argmax": (lambda f, y: (f.argmax(1) != y).double().mean(), CLASSES, "in a way that can be differentiated"),
    "other shapes": (
        lambda f, y: functional.cross_entropy(f, y[:-1]),
        CLASSES,
        r"loss fails on outputs of shape \(6, 3\), in double precision, with y of shape \(6,\) and torch.int64",
    ),
    "other types": (lambda f, y: functional.nll_loss(f, y.float()), CLASSES, "loss fails on outputs of shape"),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("name", NO_FUNCTIONS)
def test_what_is_no_function_of_the_outputs_is_refused(name):
    loss, y, message = NO_FUNCTIONS[name]
    with pytest.raises(ValueError, match=message):
        loss_of(loss, y, outputs())


def squared_in_single_precision(f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (f.float() - y.float()).square().mean()


@pytest.mark.bad_input
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_single_precision_out_of_sight_is_refused():
    with pytest.raises(ValueError, match="lower precision than double where it cannot be changed"):
        loss_of(torch.jit.script(squared_in_single_precision), numbers(), outputs())


@pytest.mark.bad_input
def test_a_class_in_place_of_a_loss_is_refused():
    with pytest.raises(TypeError, match=r"loss is the class CrossEntropyLoss; pass an instance of it, CrossEntropyLo"):
        loss_of(nn.CrossEntropyLoss, CLASSES, outputs())


@pytest.mark.bad_input
def test_log_probabilities_are_sent_to_the_cross_entropy():
    """Which has the same gradient by the parameters."""
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(4, K), nn.LogSoftmax(1)).double(), torch.randn(N, 4).double()
    with pytest.raises(ValueError, match="for NLLLoss of log-probabilities 'cross_entropy'"):
        GaussNewton(net, x, CLASSES, nn.NLLLoss()).condition_number()
    losses = nn.NLLLoss()(net(x), CLASSES), functional.cross_entropy(net(x), CLASSES)
    first, second = (torch.autograd.grad(loss, [*net.parameters()], retain_graph=True) for loss in losses)
    torch.testing.assert_close(first, second)

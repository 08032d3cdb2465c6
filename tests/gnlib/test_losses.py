"""Losses and their roots against automatic differentiation; what wrong targets and what is no function are told."""

import random
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from gnlib import GaussNewton
from gnlib.losses import loss_of
from tests.gnlib.diagnosis.networks import half, train
from tests.gnlib.networks import Whole
from tests.oracles import normal

N, K = 6, 4
WEIGHTS = torch.tensor([1.0, 0.3, 3.1, 0.7])
METRIC = torch.tensor([[2.0, 0.1, 0.0, 0.2], [0.1, 1.0, 0.3, 0.0], [0.0, 0.3, 1.7, 0.0], [0.2, 0.0, 0.0, 0.9]])
CLASSES, WEIGHTED = torch.arange(N) % K, nn.CrossEntropyLoss(weight=WEIGHTS)


F, NUMBERS, TARGETS = normal(N, K, seed=0), normal(N, K, seed=1).float(), normal(N, K, seed=2)
PROBABILITIES = TARGETS.softmax(1)
entropy, binary = functional.cross_entropy, functional.binary_cross_entropy_with_logits


def smooth(f, y):
    return (f - y).pow(4).sum() / len(f) + functional.huber_loss(f, y)


def holding(forward, **buffers):
    """A loss that is a module with buffers."""
    module = Whole(forward)
    for name, buffer in buffers.items():
        module.register_buffer(name, buffer)
    return module


def focal(f, y, alpha):
    logs = functional.log_softmax(f, 1).gather(1, y[:, None])[:, 0]
    return -(alpha[y] * (1 + (1 - logs.exp())) * logs).mean()


def metric(f, y):
    return torch.einsum("na,ab,nb->", f - y, METRIC.to(f.dtype), f - y.to(f.dtype)) / N


CASES = {  # loss, targets, and the same written out for plain autograd
    "numbers": ("mse", TARGETS, half),
    "squared error of classes": ("mse", CLASSES, lambda f, y: half(f, functional.one_hot(y, K))),
    "classes": ("cross_entropy", CLASSES, entropy),
    "one-hot": ("cross_entropy", functional.one_hot(CLASSES, K), lambda f, y: entropy(f, y.double())),
    "soft": ("cross_entropy", PROBABILITIES, entropy),
    "torch's squared error": (nn.MSELoss(), TARGETS, nn.MSELoss()),
    "smoothed labels": (nn.CrossEntropyLoss(label_smoothing=0.1), CLASSES, nn.CrossEntropyLoss(label_smoothing=0.1)),
    "binary": (binary, PROBABILITIES, binary),
    "fourth powers": (smooth, TARGETS, smooth),
}
FOCAL = holding(lambda self, f, y: focal(f.float(), y, self.alpha), alpha=WEIGHTS.clone())  # as under mixed precision
IN_SINGLE_PRECISION = {  # as they are written for training, and written out in double precision
    "weights of classes": (WEIGHTED, CLASSES, lambda f, y: entropy(f, y, WEIGHTS.double())),
    "probabilities": (
        lambda f, y: functional.binary_cross_entropy(f.sigmoid(), y),
        NUMBERS.sigmoid(),
        lambda f, y: binary(f, y.double()),
    ),
    "weights of positives": (
        nn.BCEWithLogitsLoss(pos_weight=WEIGHTS),
        (NUMBERS > 0).float(),
        lambda f, y: binary(f, y.double(), pos_weight=WEIGHTS.double()),
    ),
    "a metric": (lambda f, y: torch.einsum("na,ab,nb->", f - y, METRIC, f - y) / N, NUMBERS, metric),
    "a cast to half": (lambda f, y: entropy(f.to(torch.bfloat16), y), CLASSES, entropy),
    "buffers, cast": (FOCAL, CLASSES, lambda f, y: focal(f, y, WEIGHTS.double())),
    "a pair of targets": (
        lambda f, y: (y[1][:, None] * (f - y[0]).square()).sum() / N,
        (NUMBERS, torch.arange(1.0, N + 1) / 7),
        lambda f, y: (y[1].double()[:, None] * (f - y[0].double()).square()).sum() / N,
    ),
}


@pytest.mark.parametrize("name, scale", [*product(CASES, [0.1, 1.0, 10.0]), *product(IN_SINGLE_PRECISION, [1.0])])
def test_derivatives_are_those_of_plain_autograd_in_double_precision(name, scale):
    """The second derivative relative to its size."""
    loss, y, plain = (CASES | IN_SINGLE_PRECISION)[name]
    tolerance = 1e-12 if name in CASES else 1e-11
    f = (scale * F).requires_grad_()
    value = plain(f, y)
    (gradient,) = torch.autograd.grad(value, f)
    hessian = torch.autograd.functional.hessian(lambda f: plain(f, y), f)
    found = loss_of(loss, y, f.detach())
    root = found.root(f.detach())
    assert found.value(f.detach()) == pytest.approx(value.item(), rel=1e-13)
    torch.testing.assert_close(found.gradient(f.detach()), N * gradient, rtol=tolerance, atol=tolerance / 100)
    blocks = torch.block_diag(*(root @ root.mT)).view(N, K, N, K)
    size = blocks.abs().max().item()
    torch.testing.assert_close(blocks, N * hessian, rtol=1e-9, atol=1e-12 * min(size, 1.0))


def test_a_loss_with_weights_is_that_of_the_network():
    torch.manual_seed(0)
    net, x = nn.Linear(4, K), torch.randn(N, 4)
    found = GaussNewton(net, x, CLASSES, WEIGHTED).forecast(rate=0.1, steps=5).losses
    net, weighted = net.double(), nn.CrossEntropyLoss(weight=WEIGHTS.double())
    losses = train(net, x.double(), CLASSES, weighted, torch.optim.SGD(net.parameters(), 0.1), 5)
    assert found.tolist() == pytest.approx(losses, rel=1e-12)


def test_the_root_of_cross_entropy_has_one_column_less():
    for loss, y in (("cross_entropy", None), (nn.CrossEntropyLoss(), CLASSES)):
        assert loss_of(loss, y, F).root(F).shape == (N, K, K - 1)


def test_a_network_that_is_sure_loses_no_digits():
    """With margins d the least probability is about exp(-d), and the second derivative of two classes p (1 - p)."""
    for margin in (1.0, 30.0, 300.0, 700.0):
        for order in ([0, 1], [1, 0]):
            f = torch.tensor([[margin, 0.0]], dtype=torch.float64)[:, order]
            p = torch.tensor(-margin, dtype=torch.float64).exp()
            squared = loss_of("cross_entropy", None, f).root(f).square().flatten()
            torch.testing.assert_close(squared, (p / (1 + p) ** 2).expand(2), rtol=1e-12, atol=0)


def test_a_loss_is_left_as_it_is():
    """It counts calls in a buffer, on which its value does not depend."""

    def counted(self, f, y):
        self.calls += 1
        return functional.mse_loss(f, y)

    loss, weighted = holding(counted, calls=torch.zeros(())), nn.CrossEntropyLoss(weight=WEIGHTS.clone())
    assert loss_of(loss, NUMBERS, F).root(F).shape == (N, K, K)
    loss_of(weighted, CLASSES, F).gradient(F)
    assert loss.calls == 0 and weighted.weight.dtype == torch.float32 == torch.get_default_dtype()


def test_noise_of_a_fixed_seed_is_none():
    def seeded(f, y):
        return functional.mse_loss(f, y + torch.randn(y.shape, generator=torch.Generator().manual_seed(3)))

    expected = functional.mse_loss(F, NUMBERS.double() + normal(N, K, seed=3)).item()
    assert loss_of(seeded, NUMBERS, F).value(F) == pytest.approx(expected, rel=1e-12)


BAD = {
    "name": ("hinge", CLASSES, "loss is 'hinge'; 'mse'"),
    "number": (3, CLASSES, "loss is of type int"),
    "a class": (nn.CrossEntropyLoss, CLASSES, r"loss is the class CrossEntropyLoss; pass an instance of it, CrossEnt"),
    "list": ("mse", [1, 2], "y is of type list"),
    "shape": ("mse", TARGETS[:, :3], rf"y has shape \({N}, 3\); classes \({N},\) or targets \({N}, {K}\)"),
    "column": ("cross_entropy", CLASSES[:, None], r"classes have no second axis: y.squeeze\(1\)"),
    "range": ("cross_entropy", CLASSES + 1, "classes from 1 to 4; of 4 outputs, 0 to 3 were expected"),
    "float classes": ("cross_entropy", CLASSES.double(), r"classes are integers, y.long\(\)"),
    "sum": ("cross_entropy", 2 * PROBABILITIES, "row . adds up to 2"),
    "negative": ("cross_entropy", F, "an entry is -"),
    "not a number": ("mse", F * torch.nan, "y has 24 entries that are NaN"),
    "no targets": (nn.MSELoss(), None, "y is missing"),
}
GENERATOR, LEARNT = torch.Generator().manual_seed(0), nn.Linear(4, K)


class Centred(nn.Module):
    """A running centre of the outputs, as in self-distillation, and a temperature that is learnt, if it is one."""

    def __init__(self, temperature):
        super().__init__()
        self.register_buffer("centre", torch.zeros(K))
        self.logit_scale = nn.Parameter(torch.zeros(()), requires_grad=temperature)

    def forward(self, f, y):
        value = entropy((f - self.centre) * self.logit_scale.exp(), y)
        if not self.logit_scale.requires_grad:
            self.centre = 0.9 * self.centre + 0.1 * f.detach().mean(0)
        return value


def in_single_precision(f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (f.float() - y.float()).square().mean()


NO_FUNCTIONS = {
    "label noise": (lambda f, y: entropy(f, torch.where(torch.rand(N) < 0.01, 0, y)), CLASSES, "draws random numbers"),
    "noise of NumPy": (
        lambda f, y: entropy(f + torch.as_tensor(np.random.randn(N, K)), y),  # noqa: NPY002
        CLASSES,
        "draws random numbers",
    ),
    "noise of Python": (lambda f, y: functional.mse_loss(f, y) * (1 + random.random()), NUMBERS, "draws random"),
    "noise of a generator": (
        lambda f, y: functional.mse_loss(f, y + torch.randn(y.shape, generator=GENERATOR)),
        NUMBERS,
        "draws random numbers",
    ),
    "a running centre": (Centred(False), CLASSES, "changes from call to call"),
    "a temperature": (Centred(True), CLASSES, "depends on logit_scale beside the outputs"),
    "a penalty": (
        lambda f, y: functional.mse_loss(f, y) + 0.1 * sum(p.square().sum() for p in LEARNT.parameters()),
        NUMBERS,
        r"depends on a tensor of shape \(4, 4\) and .* pass optimizer=torch.optim.SGD\(..., weight_decay=...\)",
    ),
    "an argmax": (lambda f, y: (f.argmax(1) != y).double().mean(), CLASSES, "in a way that can be differentiated"),
    "other shapes": (
        lambda f, y: entropy(f, y[:-1]),
        CLASSES,
        r"loss fails on outputs of shape \(6, 4\), in double precision, with y of shape \(6,\) and torch.int64",
    ),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("name", BAD | NO_FUNCTIONS)
def test_what_wrong_targets_and_no_functions_of_the_outputs_are_told(name):
    loss, y, message = (BAD | NO_FUNCTIONS)[name]
    error = TypeError if name in ("number", "a class", "list", "float classes") else ValueError
    with pytest.raises(error, match=message):
        loss_of(loss, y, F)


@pytest.mark.bad_input
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_single_precision_out_of_sight_is_refused():
    with pytest.raises(ValueError, match="lower precision than double where it cannot be changed"):
        loss_of(torch.jit.script(in_single_precision), NUMBERS, F)


BAD_CURVATURE = {
    "none": (nn.L1Loss(), "has no second derivative"),
    "linear": (lambda f, y: f.sum(), "has no second derivative"),
    "log-probabilities": (lambda f, y: nn.NLLLoss()(f, CLASSES), "for NLLLoss of log-probabilities 'cross_entropy'"),
    "once": (lambda f, y: nn.MultiMarginLoss()(f, CLASSES), "cannot be differentiated twice"),
    "concave": (lambda f, y: -(f - y).square().mean(), "convex"),
    "samples": (lambda f, y: (f - y).square().sum().square(), "is no sum over the samples"),
    "many": (nn.MSELoss(reduction="none"), r"a tensor of shape \(6, 4\); one number"),
    "number": (lambda f, y: 1.0, "loss returned float"),
    "root": (lambda f, y: ((f - f.detach()).abs() + 0.0).pow(1.5).mean(), "NaN or infinite"),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("name", BAD_CURVATURE)
def test_what_a_loss_without_curvature_is_told(name):
    loss, message = BAD_CURVATURE[name]
    with pytest.raises(ValueError, match=message):
        loss_of(loss, TARGETS, F).root(F)

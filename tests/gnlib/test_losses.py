"""Losses and their roots against automatic differentiation, and what wrong targets are told."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from gnlib.losses import loss_of
from tests.gnlib.derivatives import assert_plain_derivatives


def outputs(n=5, k=4, scale=1.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(n, k, generator=generator, dtype=torch.float64)


def classes(n=5, k=4):
    return torch.arange(n) % k


def probabilities(n=5, k=4):
    return outputs(n, k, seed=1).softmax(1)


def smooth(f, y):
    return (f - y).pow(4).sum() / len(f) + functional.huber_loss(f, y)


CASES = {  # loss, targets, and the same written out for plain autograd
    "numbers": ("mse", outputs(seed=2), lambda f, y: (f - y).square().sum() / (2 * len(f))),
    "squared error of classes": (
        "mse",
        classes(),
        lambda f, y: (f - functional.one_hot(y, 4)).square().sum() / (2 * len(f)),
    ),
    "classes": ("cross_entropy", classes(), functional.cross_entropy),
    "one-hot": (
        "cross_entropy",
        functional.one_hot(classes(), 4),
        lambda f, y: functional.cross_entropy(f, y.double()),
    ),
    "soft": ("cross_entropy", probabilities(), functional.cross_entropy),
    "torch's squared error": (nn.MSELoss(), outputs(seed=2), nn.MSELoss()),
    "weighted classes": (
        nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0, 4.0]).double()),
        classes(),
        nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0, 4.0]).double()),
    ),
    "smoothed labels": (
        nn.CrossEntropyLoss(label_smoothing=0.1),
        classes(),
        nn.CrossEntropyLoss(label_smoothing=0.1),
    ),
    "binary": (
        functional.binary_cross_entropy_with_logits,
        probabilities(),
        functional.binary_cross_entropy_with_logits,
    ),
    "fourth powers": (smooth, outputs(seed=2), smooth),
}


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_of_plain_autograd(name, scale):
    loss, y, plain = CASES[name]
    assert_plain_derivatives(loss, y, plain, outputs(scale=scale), rtol=1e-12, atol=1e-14)


def test_the_root_of_cross_entropy_has_one_column_less():
    assert loss_of("cross_entropy", None, outputs()).root(outputs()).shape == (5, 4, 3)
    assert loss_of(nn.CrossEntropyLoss(), classes(), outputs()).root(outputs()).shape == (5, 4, 3)


def test_a_network_that_is_sure_loses_no_digits():
    """With margins d the least probability is about exp(-d), and the second derivative of two classes p (1 - p)."""
    for margin in (1.0, 30.0, 300.0, 700.0):
        for order in ([0, 1], [1, 0]):
            f = torch.tensor([[margin, 0.0]], dtype=torch.float64)[:, order]
            p = torch.tensor(-margin, dtype=torch.float64).exp()
            squared = loss_of("cross_entropy", None, f).root(f).square().flatten()
            torch.testing.assert_close(squared, (p / (1 + p) ** 2).expand(2), rtol=1e-12, atol=0)


BAD = {
    "name": ("hinge", classes(), ValueError, "loss is 'hinge'; 'mse'"),
    "number": (3, classes(), TypeError, "loss is of type int"),
    "list": ("mse", [1, 2], TypeError, "y is of type list"),
    "shape": ("mse", outputs(5, 3), ValueError, r"y has shape \(5, 3\); classes \(5,\) or targets \(5, 4\)"),
    "length": ("cross_entropy", classes(6), ValueError, r"y has shape \(6,\)"),
    "column": ("cross_entropy", classes()[:, None], ValueError, r"classes have no second axis: y.squeeze\(1\)"),
    "range": ("cross_entropy", classes() + 1, ValueError, "classes from 1 to 4; of 4 outputs, 0 to 3 were expected"),
    "negative class": ("cross_entropy", -classes(), ValueError, "classes from -3 to 0"),
    "float classes": ("cross_entropy", classes().double(), TypeError, r"classes are integers, y.long\(\)"),
    "sum": ("cross_entropy", 2 * probabilities(), ValueError, "row . adds up to 2"),
    "negative": ("cross_entropy", outputs(), ValueError, "an entry is -"),
    "not a number": ("mse", outputs() * torch.nan, ValueError, "y has 20 entries that are NaN"),
    "no targets": (nn.MSELoss(), None, ValueError, "y is missing"),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("name", BAD)
def test_what_wrong_targets_are_told(name):
    loss, y, error, message = BAD[name]
    with pytest.raises(error, match=message):
        loss_of(loss, y, outputs())


BAD_CURVATURE = {
    "none": (nn.L1Loss(), "has no second derivative"),
    "linear": (lambda f, y: f.sum(), "has no second derivative"),
    "once": (lambda f, y: nn.MultiMarginLoss()(f, classes()), "cannot be differentiated twice"),
    "concave": (lambda f, y: -(f - y).square().mean(), "convex"),
    "samples": (lambda f, y: (f - y).square().sum().square(), "is no sum over the samples"),
    "many": (nn.MSELoss(reduction="none"), r"a tensor of shape \(5, 4\); one number"),
    "number": (lambda f, y: 1.0, "loss returned float"),
    "root": (lambda f, y: ((f - f.detach()).abs() + 0.0).pow(1.5).mean(), "NaN or infinite"),
}


@pytest.mark.bad_input
@pytest.mark.parametrize("name", BAD_CURVATURE)
def test_what_a_loss_without_curvature_is_told(name):
    loss, message = BAD_CURVATURE[name]
    with pytest.raises(ValueError, match=message):
        loss_of(loss, outputs(seed=2), outputs()).root(outputs())

"""Training at the best of all rates."""

import math

import numpy as np
import pytest
import torch
from gnbook.shared.families import build
from gnbook.shared.training import half_squared_error
from gnbook.shared.tuning import Outcome, Setting, race, tune
from torch import nn

from tests.gnlib.diagnosis.networks import train

OPTIMIZERS = {
    "descent": lambda parameters, rate: torch.optim.SGD(parameters, rate),
    "momentum": lambda parameters, rate: torch.optim.SGD(parameters, rate, momentum=0.9),
    "adam": lambda parameters, rate: torch.optim.Adam(parameters, rate),
}


def line(slopes):
    """A linear network without bias on scaled unit vectors: each weight moves by itself, with these curvatures."""
    n = len(slopes)
    network = nn.Linear(n, 1, bias=False)
    nn.init.zeros_(network.weight)
    return network, torch.diag(torch.tensor(slopes).sqrt()) * n**0.5, torch.ones(n, 1)


def images(n=12):
    generator = torch.Generator().manual_seed(0)
    x, labels = torch.randn(n, 3, 16, 16, generator=generator).double(), torch.arange(n) % 10
    return x, nn.functional.one_hot(labels, 10).double(), labels


@pytest.mark.parametrize("guess", [1e-5, 30.0])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_best_rate_is_inside_of_the_grid_whatever_was_guessed(optimizer, guess):
    network, x, y = line([1.0, 0.3])
    found = tune(network, Setting(x, y, "mse", optimizer, {"a": 0.05, "b": 0.005}, horizon=60), guess)
    rates = sorted(found.curves)
    assert np.allclose(np.diff(np.log2(rates)), 1)
    for goal in "ab":
        steps, rate = found.best(goal)
        assert steps < math.inf and rates[0] < rate < rates[-1]
    assert found.edges == (False, False)


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("family", ["MLP, tanh", "CNN, BatchNorm", "ResNet, SkipInit"])
def test_paths_are_those_of_torchs_optimisers(family, optimizer, loss):
    x, targets, labels = images()
    network, rates = build(family, "default", seed=0), [1e-4, 3e-3]
    kept = {name: p.clone() for name, p in network.named_parameters()}
    y, function = (targets, half_squared_error) if loss == "mse" else (labels, nn.functional.cross_entropy)
    curves = race(network, Setting(x, y, loss, optimizer, {"low": 0.0}, horizon=5), rates)
    assert all(torch.equal(p, kept[name]) for name, p in network.named_parameters())
    for rate, curve in zip(rates, curves, strict=True):
        alone = build(family, "default", seed=0)
        losses = train(alone, x, y, function, OPTIMIZERS[optimizer](alone.parameters(), rate), 5)
        assert curve == pytest.approx(losses, rel=2e-3)


def test_it_ends_with_the_first_run_that_reaches_the_last_goal():
    network, x, y = line([1.0])
    setting = Setting(x, y, "mse", "descent", {"a": 0.2, "b": 0.01}, horizon=50)
    slow, fast = race(network, setting, [0.125, 0.5])
    assert len(slow) == len(fast) == 4 and fast[-1] < 0.01 <= fast[-2]
    found = Outcome(setting, {0.125: slow, 0.5: fast})
    assert found.best("a") == (1, 0.5) and found.steps("b") == {0.125: math.inf, 0.5: 3}

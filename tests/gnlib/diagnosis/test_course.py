"""Both bounds on the losses of the linear model, beside the losses themselves, and what is refused."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from gnlib import GaussNewton


def perceptron():
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))


def convolution():
    return nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.LSTM(2, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.layer(x.view(-1, 3, 2))[0][:, -1])


KINDS = {"perceptron": perceptron, "convolution": convolution, "recurrent": Recurrent}


def noun(kind, n=20, **options):
    torch.manual_seed(0)
    module = KINDS[kind]().double()
    return GaussNewton(module, torch.randn(n, 6).double(), torch.randn(n, 3).double(), **options)


def losses(g, rate, steps):
    """Losses of the linear model, one step after the other."""
    problem = g._problem
    kernel, residual = problem.gram, problem.loss.gradient(problem.outputs).flatten()
    found = []
    for _ in range(steps + 1):
        found.append(float(residual @ residual) / (2 * len(problem.outputs)))
        residual = residual - rate * kernel @ residual
    return torch.tensor(found, dtype=torch.float64)


@pytest.mark.parametrize("factor", [0.2, 1.0, 1.9])
@pytest.mark.parametrize("kind", KINDS)
def test_the_losses_of_the_linear_model_lie_between(kind, factor):
    g = noun(kind)
    rate = factor / float(g.eigenvalues()[0])
    exact = losses(g, rate, 200)
    for products in (8, 20, 50):
        found = g.loss_bounds(rate=rate, steps=200, products=products, within=1.0)
        assert (found.lower <= exact * (1 + 1e-9)).all() and (exact <= found.upper * (1 + 1e-9)).all()
        assert found.lower[0] == pytest.approx(float(exact[0])) == pytest.approx(float(found.upper[0]))


@pytest.mark.parametrize("kind", KINDS)
def test_with_enough_products_both_are_the_losses(kind):
    g = noun(kind)
    rate = 1 / float(g.eigenvalues()[0])
    found = g.loss_bounds(rate=rate, steps=300, products=300, within=1 + 1e-9)
    exact = losses(g, rate, 300)
    assert torch.allclose(found.lower, exact, rtol=1e-6) and torch.allclose(found.upper, exact, rtol=1e-6)
    forecast = g.forecast(rate=rate, steps=300, budget=1e-9)
    assert torch.allclose(found.upper, forecast.losses, rtol=1e-6)


def test_steps_to_a_goal_and_the_eigenvalue_that_they_wait_for():
    g = noun("convolution")
    found = g.loss_bounds(steps=2000, products=200)
    rate, goal = found.rate, 0.3
    exact = losses(g, rate, 2000)
    step = int((exact <= goal * exact[0]).nonzero()[0])
    first, last = found.steps_to(goal * float(exact[0]))
    assert (first <= step <= last and found.within <= 1.05) or found.upper[-1] - found.lower[-1] < 1e-3 * exact[0]
    whole = g.waiting(goal, rate=rate)
    assert found.waiting(goal).lower == pytest.approx(whole.lower, rel=0.2)


def test_it_stops_when_the_bounds_are_near_and_takes_more_for_more_steps():
    g = noun("perceptron", 40)
    few, many = (g.loss_bounds(steps=steps, products=1000) for steps in (10, 1000))
    assert few.products < many.products < 1000
    assert f"; {few.products} products" in str(few)


def test_a_goal_that_is_not_reached_has_no_step():
    found = noun("perceptron").loss_bounds(steps=3)
    assert found.steps_to(0.0) == (None, None) and "after more than 3 steps" in str(found)


def test_a_rate_that_is_given_is_taken_and_one_that_is_not_is_one_over_the_largest_eigenvalue():
    g = noun("perceptron")
    assert g.loss_bounds(steps=2, rate=1e-3).rate == 1e-3
    found = g.loss_bounds(steps=2)
    assert 0.97 < found.rate * float(g.eigenvalues()[0]) <= 1 and found.largest >= float(g.eigenvalues()[0])


LARGE = """
import resource, torch
from torch import nn
import gnlib
torch.manual_seed(0)
module = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 300))
x, y = torch.randn(100, 10), torch.randn(100, 300)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
g = gnlib.GaussNewton(module, x, y, memory=0.1)
found = g.loss_bounds(steps=200)
print(found.within, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20)
"""


@pytest.mark.slow
def test_a_matrix_that_has_no_room_is_not_made():
    """Of 30,000 rows it would take 6.7 GiB."""
    run = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=True)
    within, gib = map(float, run.stdout.split())
    assert 1 <= within < 1.1 and gib < 0.15


@pytest.mark.bad_input
def test_what_has_no_such_bounds_is_refused():
    torch.manual_seed(0)
    net, x = perceptron().double(), torch.randn(8, 6).double()
    with pytest.raises(ValueError, match="y is missing"):
        GaussNewton(net, x).loss_bounds()
    with pytest.raises(ValueError, match=r"of the squared error, and the loss is cross_entropy; pass loss='mse'"):
        GaussNewton(net, x, torch.arange(8) % 3, "cross_entropy").loss_bounds()
    with pytest.raises(ValueError, match="2 over the largest eigenvalue, the loss grows"):
        noun("perceptron").loss_bounds(rate=1e6)
    with pytest.raises(ValueError, match="there is no loss to fall"):
        GaussNewton(net, x, net(x).detach()).loss_bounds()


def test_zeros_of_the_spectrum_stay():
    """More outputs than parameters: a part of the residual does not move, and both bounds end above it."""
    torch.manual_seed(1)
    g = GaussNewton(nn.Linear(1, 1, bias=False).double(), torch.ones(6, 1).double(), torch.randn(6, 1).double())
    found = g.loss_bounds(steps=100)
    exact = losses(g, found.rate, 100)
    assert np.allclose(found.lower, exact, rtol=1e-9) and np.allclose(found.upper, exact, rtol=1e-9)

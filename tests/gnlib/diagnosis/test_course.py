"""Both bounds on the losses of the linear model, beside the losses themselves, and what is refused."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from gnlib import GaussNewton
from gnlib.diagnosis.course import waiting_by_products


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
    bounds = found.waiting(goal)
    assert bounds.lower <= whole.lower and bounds.upper >= whole.upper


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


@pytest.mark.parametrize("n", [6, 50])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_same_bounds_from_either_side_and_in_single_precision(n, dtype):
    """Few samples have fewer outputs than parameters, many have more."""
    g, by = noun("perceptron", n), noun("perceptron", n, dtype=dtype)
    assert by._side.name == ("outputs" if n == 6 else "parameters")
    rate = 1 / float(g.eigenvalues()[0])
    exact = losses(g, rate, 300)
    for products in (25, 40):
        found = by.loss_bounds(rate=rate, steps=300, products=products, within=1.0)
        slack = 1e-9 if dtype == torch.float64 else 1e-4
        assert (found.lower <= exact * (1 + slack)).all() and (exact <= found.upper * (1 + slack)).all()
        assert found.products <= products and found.error < 1e-5
    assert found.within < 1.2
    whole, estimate = g.waiting(0.3, rate=rate), by.waiting(0.3, rate=rate)
    assert whole.lower / 1.3 <= estimate.lower <= whole.lower * (1 + 1e-4)
    assert whole.upper <= estimate.upper
    assert by.effective_condition_number(0.3) == pytest.approx(g.effective_condition_number(0.3), rel=0.5)


@pytest.mark.parametrize("kind", ["perceptron", "convolution"])
def test_of_cross_entropy_the_quadratic_model_is_what_waits(kind):
    torch.manual_seed(0)
    module, x, y = KINDS[kind]().double(), torch.randn(40, 6).double(), torch.arange(40) % 3
    whole = GaussNewton(module, x, y, "cross_entropy").waiting(0.5)
    found = GaussNewton(module, x, y, "cross_entropy", dtype=torch.float64).waiting(0.5)
    assert whole.lower / 1.3 <= found.lower <= whole.lower * (1 + 1e-9)
    assert whole.upper <= found.upper <= 1.5 * whole.upper + 1


def test_the_layers_that_training_waits_for_are_named():
    g, by = noun("perceptron", 6), noun("perceptron", 6, dtype=torch.float64)
    one, other = (each.loss_bounds(steps=50, products=60, within=1.0) for each in (g, by))
    assert one.layers == pytest.approx(other.layers, abs=1e-3) and sum(one.layers.values()) == pytest.approx(1)
    values, vectors = g._problem.spectrum
    eigenvalue = one.waiting().eigenvalue
    v = vectors[:, int((values - eigenvalue).abs().argmin())]
    network = g._problem.module
    f = network(torch.cat([n.x for n in g._problem.networks]))
    gradients = torch.autograd.grad(f.flatten() @ v, [*network.parameters()])
    squares = [float(p.square().sum()) for p in gradients]
    assert one.layers["0"] == pytest.approx(sum(squares[:2]) / sum(squares), abs=1e-3)


def test_the_page_of_a_network_of_any_size():
    page = noun("perceptron", 40, dtype=torch.float32).report(budget=1e-3)
    text = " ".join(str(page).split())
    assert "Sequential, 40 samples, 120 outputs, 123 parameters, mse, float32: products are right to" in text
    for name in ("largest eigenvalue", "gradient descent", "waits for", "forecast", "cost"):
        assert name in text
    assert page.rates[0].rate == pytest.approx(2 / float(noun("perceptron", 40).eigenvalues()[0]), rel=1e-2)
    assert page.rates[1].rate == pytest.approx(1.9 * page.rates[0].rate)
    assert "<table>" in page._repr_html_() and page.products < 150
    torch.manual_seed(0)
    net, x = perceptron(), torch.randn(8, 6)
    without = GaussNewton(net, x, dtype=torch.float32).report()
    assert without.bounds is None and without.waiting is None and "waits for" not in str(without)
    entropy = GaussNewton(net, x, torch.arange(8) % 3, "cross_entropy", dtype=torch.float32).report(budget=1e-3)
    assert entropy.bounds is None and "of the quadratic model of the loss" in " ".join(str(entropy).split())


@pytest.mark.bad_input
def test_numbers_that_are_none_are_refused():
    g = noun("perceptron")
    for options, message in (
        ({"rate": 0}, "rate is 0; a positive number"),
        ({"rate": -1.0}, "rate is -1.0; a positive number"),
        ({"steps": 0}, "steps is 0; a whole number"),
        ({"products": 2.5}, "products is 2.5; a whole number"),
        ({"within": 0.9}, "within is 0.9; a factor of at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            g.loss_bounds(**options)
    for each in (g, noun("perceptron", dtype=torch.float32)):
        with pytest.raises(ValueError, match=r"rate is 0(\.0)?; (give )?a positive"):
            each.waiting(rate=0)
    with pytest.raises(ValueError, match="by products the steps are known up to"):
        noun("perceptron", dtype=torch.float32).waiting(rate=1.5 / float(g.eigenvalues()[0]))
    by = noun("perceptron", dtype=torch.float32, optimizer="adam")
    with pytest.raises(ValueError, match="stable rate is known of SGD with one group and no weight decay"):
        by.stable_rate()
    with pytest.raises(ValueError, match="The smallest eigenvalue cannot be had by products"):
        noun("perceptron", dtype=torch.float32).stable_rate().left()


@pytest.mark.parametrize("goal", [0.5, 0.1, 0.01])
@pytest.mark.parametrize("kind", KINDS)
def test_the_bounds_on_waiting_hold_after_any_number_of_products(kind, goal):
    g = noun(kind, 40)
    rate = 1 / float(g.eigenvalues()[0])
    whole = g.waiting(goal, rate=rate)
    lower = 0.0
    for products in (20, 40, 80, 200):
        found, _, taken = waiting_by_products(g._view(), goal, rate, products=products)
        assert found.lower <= whole.lower * (1 + 1e-6) and found.upper >= whole.upper * (1 - 1e-6)
        assert taken <= products
        assert found.lower >= lower * (1 - 1e-9)
        lower = found.lower
    if whole.lower < 100:
        assert lower > whole.lower / 1.3 and found.upper <= 1.5 * whole.upper + 1


def test_what_single_precision_does_not_resolve_is_not_called_never():
    """Half of the residual is on an eigenvalue a billion times smaller than the largest."""
    line, x = nn.Linear(2, 1, bias=False), torch.tensor([[1.0, 0.0], [0.0, 3e-5]])
    _ = nn.init.zeros_(line.weight)
    exact = GaussNewton(line, x, torch.ones(2, 1)).waiting(0.1, rate=1 / 0.51)
    found = GaussNewton(line, x, torch.ones(2, 1), dtype=torch.float32).waiting(0.1)
    assert exact.upper < found.upper == float("inf") and 0 < found.lower < exact.lower < float("inf")
    double = GaussNewton(line.double(), x.double(), torch.ones(2, 1).double(), dtype=torch.float64)
    double = double.waiting(0.1, rate=1 / 0.51)
    assert double.lower == pytest.approx(exact.lower, rel=1e-6)

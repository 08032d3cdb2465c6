"""Both bounds on the losses of the linear model, beside the losses themselves, and what is refused."""

import numpy as np
import pytest
import torch
from torch import nn

from gnlib import GaussNewton
from gnlib.diagnosis.course import waiting_by_products
from tests.gnlib.diagnosis.networks import CASES, drawn, page

F64, F32 = torch.float64, torch.float32


def asked(name="mlp", n=20, **options):
    net, x = drawn(name, n)
    return GaussNewton(net, x, torch.randn(n, net(x).shape[1]).double(), **options)


def losses(g, rate, steps):
    """Losses of the linear model, one step after the other."""
    problem = g._problem
    kernel, residual = problem.gram, problem.loss.gradient(problem.outputs).flatten()
    found = []
    for _ in range(steps + 1):
        found.append(float(residual @ residual) / (2 * len(problem.outputs)))
        residual = residual - rate * kernel @ residual
    return torch.tensor(found, dtype=torch.float64)


def hold(found, exact, slack=1e-9):
    return (found.lower <= exact * (1 + slack)).all() and (exact <= found.upper * (1 + slack)).all()


@pytest.mark.parametrize("factor", [0.2, 1.0, 1.9])
@pytest.mark.parametrize("name", CASES)
def test_the_losses_of_the_linear_model_lie_between_and_both_come_to_be_them(name, factor):
    g = asked(name)
    rate = factor / float(g.eigenvalues()[0])
    exact = losses(g, rate, 200)
    for products in (8, 20, 50, 300):
        found = g.loss_bounds(rate=rate, steps=200, products=products, within=1.0)
        assert hold(found, exact)
        assert found.lower[0] == pytest.approx(float(exact[0])) == pytest.approx(float(found.upper[0]))
    assert torch.allclose(found.lower, exact, rtol=1e-6) and torch.allclose(found.upper, exact, rtol=1e-6)
    assert found.rate == rate
    if factor == 1.0:  # sixty products have narrow bounds on a thousand steps
        found = asked(name, 60, dtype=F32).loss_bounds(steps=1000, products=60)
        assert hold(found, losses(asked(name, 60), found.rate, 1000), 1e-4) and found.products <= 60
        assert found.within <= 1.05 or float(found.upper[-1] - found.lower[-1]) <= 1e-3 * float(found.lower[0])


@pytest.mark.parametrize("n", [6, 50])
@pytest.mark.parametrize("dtype", [F64, F32])
def test_the_same_bounds_from_either_side_and_in_single_precision(n, dtype):
    """Few samples have fewer outputs than parameters, many have more."""
    g, by = asked(n=n), asked(n=n, dtype=dtype)
    assert by._side.name == ("outputs" if n == 6 else "parameters")
    rate, slack = 1 / float(g.eigenvalues()[0]), 1e-9 if dtype == F64 else 1e-4
    exact = losses(g, rate, 300)
    for products in (25, 40):
        found = by.loss_bounds(rate=rate, steps=300, products=products, within=1.0)
        assert hold(found, exact, slack) and found.products <= products and found.error < 1e-5
    assert found.within < 1.2
    whole, estimate = g.waiting(0.3, rate=rate), by.waiting(0.3, rate=rate)
    if whole.lower < torch.inf:  # with more outputs than parameters the loss may stay above the goal
        assert whole.lower / 1.3 <= estimate.lower <= whole.lower * (1 + 1e-4)
        assert by.effective_condition_number(0.3) == pytest.approx(g.effective_condition_number(0.3), rel=0.5)
    assert whole.upper <= estimate.upper


def test_steps_to_a_goal_and_the_rate_that_is_taken():
    g = asked("cnn")
    found = g.loss_bounds(steps=2000, products=200)
    assert 0.97 < found.rate * float(g.eigenvalues()[0]) <= 1 and found.largest >= float(g.eigenvalues()[0])
    exact, goal = losses(g, found.rate, 2000), 0.3
    step = int((exact <= goal * exact[0]).nonzero()[0])
    first, last = found.steps_to(goal * float(exact[0]))
    assert (first <= step <= last and found.within <= 1.05) or found.upper[-1] - found.lower[-1] < 1e-3 * exact[0]
    whole, bounds = g.waiting(goal, rate=found.rate), found.waiting(goal)
    assert bounds.lower <= whole.lower and bounds.upper >= whole.upper
    few, many = (asked(n=40).loss_bounds(steps=steps, products=1000) for steps in (3, 1000))
    assert few.products < many.products < 1000
    assert few.steps_to(0.0) == (None, None) and f"after more than 3 steps; {few.products} products" in str(few)


def test_zeros_of_the_spectrum_stay():
    """More outputs than parameters: a part of the residual does not move, and both bounds end above it."""
    torch.manual_seed(1)
    g = GaussNewton(nn.Linear(1, 1, bias=False).double(), torch.ones(6, 1).double(), torch.randn(6, 1).double())
    found = g.loss_bounds(steps=100)
    exact = losses(g, found.rate, 100)
    assert np.allclose(found.lower, exact, rtol=1e-9) and np.allclose(found.upper, exact, rtol=1e-9)


def test_the_layers_that_training_waits_for_are_named():
    g, by = asked(n=6), asked(n=6, dtype=F64)
    one, other = (each.loss_bounds(steps=50, products=60, within=1.0) for each in (g, by))
    assert one.layers == pytest.approx(other.layers, abs=1e-3) and sum(one.layers.values()) == pytest.approx(1)
    values, vectors = g._problem.spectrum
    v, network = vectors[:, int((values - one.waiting().eigenvalue).abs().argmin())], g._problem.module
    f = network(torch.cat([n.x for n in g._problem.networks]))
    squares = [float(p.square().sum()) for p in torch.autograd.grad(f.flatten() @ v, [*network.parameters()])]
    assert one.layers["0"] == pytest.approx(sum(squares[:2]) / sum(squares), abs=1e-3)


def test_the_page_of_a_network_of_any_size():
    found, largest = asked(n=40, dtype=F32).report(budget=1e-3), float(asked(n=40).eigenvalues()[0])
    text = page(found)
    assert "Sequential, 40 samples, 120 outputs, 66 parameters, mse, float32: products are right to" in text
    assert all(name in text for name in ("largest eigenvalue", "waits for", "forecast", "cost"))
    assert [each.rate for each in found.rates] == pytest.approx([2 / largest, 3.8 / largest], rel=1e-2)
    assert "<table>" in found._repr_html_() and found.products < 150
    net, x = drawn("mlp", 8)
    without = GaussNewton(net, x, dtype=F32).report()
    assert without.bounds is None and without.waiting is None and "waits for" not in str(without)
    entropy = GaussNewton(net, x, torch.arange(8) % 3, "cross_entropy", dtype=F32).report(budget=1e-3)
    assert entropy.bounds is None and "of the quadratic model of the loss" in page(entropy)


@pytest.mark.parametrize("goal", [0.5, 0.1, 0.01])
@pytest.mark.parametrize("name", ["mlp", "cnn", "transformer"])
def test_the_bounds_on_waiting_hold_after_any_number_of_products(name, goal):
    g = asked(name, 40)
    rate = 1 / float(g.eigenvalues()[0])
    whole, lower = g.waiting(goal, rate=rate), 0.0
    for products in (20, 40, 80, 200):
        found, _, taken = waiting_by_products(g._view(), goal, rate, products=products)
        assert found.lower <= whole.lower * (1 + 1e-6) and found.upper >= whole.upper * (1 - 1e-6)
        assert taken <= products and found.lower >= lower * (1 - 1e-9)
        lower = found.lower
    if whole.lower < 100:
        assert lower > whole.lower / 1.3 and found.upper <= 1.5 * whole.upper + 1


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_of_cross_entropy_the_quadratic_model_is_what_waits(name):
    net, x = drawn(name, 40)
    whole, found = (
        GaussNewton(net, x, torch.arange(40) % 3, "cross_entropy", dtype=dtype).waiting(0.5) for dtype in (None, F64)
    )
    assert whole.lower / 1.3 <= found.lower <= whole.lower * (1 + 1e-9)
    assert whole.upper <= found.upper <= 1.5 * whole.upper + 1


def test_what_single_precision_does_not_resolve_is_not_called_never():
    """Half of the residual is on an eigenvalue a billion times smaller than the largest."""
    line, x = nn.Linear(2, 1, bias=False), torch.tensor([[1.0, 0.0], [0.0, 3e-5]])
    _ = nn.init.zeros_(line.weight)
    exact = GaussNewton(line, x, torch.ones(2, 1)).waiting(0.1, rate=1 / 0.51)
    found = GaussNewton(line, x, torch.ones(2, 1), dtype=F32).waiting(0.1)
    assert exact.upper < found.upper == float("inf") and 0 < found.lower < exact.lower < float("inf")
    double = GaussNewton(line.double(), x.double(), torch.ones(2, 1).double(), dtype=F64).waiting(0.1, rate=1 / 0.51)
    assert double.lower == pytest.approx(exact.lower, rel=1e-6)


@pytest.mark.bad_input
def test_what_has_no_such_bounds_is_refused():
    net, x = drawn("mlp", 8)
    whole, by, fit = GaussNewton(net, x, x[:, :3]), GaussNewton(net, x, x[:, :3], dtype=F32), net(x).detach()
    for ask, message in (
        (lambda: GaussNewton(net, x).loss_bounds(), "y is missing"),
        (lambda: GaussNewton(net, x, torch.arange(8) % 3, "cross_entropy").loss_bounds(), "of the squared error, and"),
        (lambda: GaussNewton(net, x, fit).loss_bounds(), "there is no loss to fall"),
        (lambda: GaussNewton(net, x, fit, dtype=F64).waiting(), "there is no loss to fall"),
        (lambda: whole.loss_bounds(rate=1e6), "2 over the largest eigenvalue, the loss grows"),
        (lambda: whole.loss_bounds(rate=0), "rate is 0; a positive number"),
        (lambda: whole.loss_bounds(steps=0), "steps is 0; a whole number"),
        (lambda: whole.loss_bounds(products=2.5), "products is 2.5; a whole number"),
        (lambda: whole.loss_bounds(within=0.9), "within is 0.9; a factor of at least 1"),
        (lambda: whole.waiting(rate=0), r"rate is 0(\.0)?; (give )?a positive"),
        (lambda: by.waiting(rate=0), r"rate is 0(\.0)?; (give )?a positive"),
        (lambda: by.waiting(rate=1.5 / float(whole.eigenvalues()[0])), "by products the steps are known up to"),
        (lambda: asked(dtype=F32, optimizer="adam").stable_rate(), "known of SGD with one group and no weight decay"),
        (lambda: by.stable_rate().left(), "The smallest eigenvalue cannot be had by products"),
    ):
        with pytest.raises(ValueError, match=message):
            ask()

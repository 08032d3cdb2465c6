"""Forecasts without a matrix beside those from one, and beside loops written by hand."""

import math
from itertools import islice

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.utils._python_dispatch import TorchDispatchMode

from gnlib import GaussNewton
from gnlib.diagnosis import foretell, linear_by_products
from gnlib.diagnosis.curves import curve_between, curve_of
from gnlib.diagnosis.descent import Rule, descend
from gnlib.eigen.quadrature import Lanczos
from tests.gnlib.diagnosis.networks import page, train
from tests.gnlib.networks import perceptron
from tests.gnlib.products.test_side import IDS, NEXT, of_tokens

F64, F32 = torch.float64, torch.float32


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """Let no other process that takes the time of this one end a forecast early."""
    monkeypatch.setattr(foretell, "PATIENCE", 1e3)


def both(n, optimizer, loss="mse", *, dtype=F64):
    """Return the forecasts with a matrix and with products at hand."""
    module = perceptron(6, 3, width=12).double()
    x, y = torch.randn(n, 6).double(), torch.randn(n, 3).double()
    y = y.argmax(1) if loss == "cross_entropy" else y
    return tuple(GaussNewton(module, x, y, loss, optimizer=optimizer, dtype=own).forecast for own in (None, dtype))


@pytest.mark.parametrize("n", [6, 50])  # few samples have fewer outputs than parameters, many have more
@pytest.mark.parametrize("loss", ["mse", "cross_entropy", nn.HuberLoss(delta=0.5)])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_at_one_rate_it_is_that_of_the_matrix(n, optimizer, loss):
    matrix, products = both(n, optimizer, loss)
    expected = matrix(steps=60)
    found = products(steps=60, rate=expected.rate)
    rel = 1e-6 if loss == "mse" else 1e-9
    assert found.losses.tolist() == pytest.approx(expected.losses.tolist(), rel=rel)
    assert (found.lower <= expected.losses * (1 + rel)).all() and (expected.losses <= found.upper * (1 + rel)).all()
    assert (found.lower <= found.losses).all() and (found.losses <= found.upper).all() and found.products > 0
    assert found.followed.tolist() == pytest.approx(expected.followed.tolist(), rel=rel)
    assert (found.rate, found.optimizer, len(found.losses)) == (expected.rate, optimizer, 61)
    assert found.trusted <= max(expected.trusted, len(found.followed))
    assert loss != "mse" or found.products < 100
    assert loss == "mse" or (torch.equal(found.lower, found.upper) and found.relative_cost > 0)
    if n == 50 and isinstance(loss, str):  # of which the losses do not fall to rounding in single precision
        single = both(n, optimizer, loss, dtype=F32)[1](steps=60, rate=expected.rate)
        assert single.losses.tolist() == pytest.approx(expected.losses.tolist(), rel=1e-5)
        assert single.followed.tolist() == pytest.approx(expected.followed.tolist(), rel=1e-3)
    by_itself = products(steps=2, budget=1e-9)
    assert by_itself.rate == pytest.approx(by_itself.stable_rate / 2, rel=1e-3)
    assert by_itself.rate == pytest.approx(expected.rate, rel=2e-3)


def test_of_tokens_that_are_not_all_counted_it_is_training():
    """Of a network that is linear in what is trained."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5)).double()
    module[0].requires_grad_(False)
    optimizer = SGD(module[1].parameters(), 0.5, momentum=0.9)
    found = GaussNewton(module, IDS, NEXT, "cross_entropy", optimizer=optimizer, dtype=F64).forecast(steps=25)
    losses = train(module, IDS, NEXT, of_tokens, optimizer, 25)
    assert found.losses.tolist() == pytest.approx(losses, rel=1e-9)
    assert found.followed.tolist() == pytest.approx(losses[1:], rel=1e-9) and found.trusted == 25


RULES = {
    "descent": Rule(1.9),
    "momentum": Rule(1.0, 0.9),
    "fast momentum": Rule(3.7, 0.9),
    "diverging": Rule(4.0, 0.9),
    "Nesterov": Rule(0.6, 0.9, nesterov=True),
    "diverging Nesterov": Rule(1.0, 0.9, nesterov=True),
    "dampening": Rule(1.0, 0.9, dampening=0.5),
    "Adam": Rule(10.0, 0.9, averaged=True),
    "diverging Adam": Rule(60.0, 0.9, averaged=True),
    "Adam on its way": Rule(3.0, 0.9, averaged=True, taken=50),
}


@pytest.mark.parametrize("low", [-5, 0.5])
@pytest.mark.parametrize("name", RULES)
def test_the_losses_lie_between_the_bounds_after_any_number_of_products(name, low):
    rule, steps = RULES[name], 200
    values = torch.logspace(-4, 0, 80).double() if low == -5 else torch.linspace(low, 1, 80).double()
    r = torch.randn(80, generator=torch.Generator().manual_seed(0)).double()
    course = descend(r, lambda sums: values * sums[0, :-2], lambda now: now, [rule])
    exact = np.array([float(now @ now) for _, now in islice(course, steps + 1)])
    process, widths = Lanczos(lambda v: values * v, r), []
    for products in range(1, 81):
        process.step()
        if products in (1, 3, 10, 30, 60, 80):
            known = process.jacobi
            curve = curve_of(known, rule, steps, 1.0)
            if not rule.momentum:
                curve = curve_between(known.gauss(), known.lobatto(-1e-12, 1.0), rule.rate, steps)
            slack = 1e-9 * exact + 1e-16 * exact[0]  # rounding, of what has fallen far too
            assert (curve.lower <= exact + slack).all() and (exact - slack <= curve.upper).all()
            assert (curve.lower <= curve.losses).all() and (curve.losses <= curve.upper).all()
            widths.append((curve.upper - curve.lower).max() / exact.max())
    assert widths[-1] < 1e-6 and widths[0] > 1e-2 * (low < 0)


def test_the_band_of_steps_is_in_the_page_and_from_a_matrix_there_is_none():
    matrix, products = both(20, "sgd")
    whole, found = matrix(steps=300), products(steps=300)
    assert torch.equal(whole.lower, whole.losses) and torch.equal(whole.upper, whole.losses)
    assert whole.products == 0 and "bounds" not in page(whole) and "products" not in page(whole)
    goal = 0.5 * float(found.losses[0])
    step = int((whole.losses <= goal).nonzero()[0])
    assert found.steps_between(goal) == pytest.approx((step, step), abs=1)
    assert f"; {found.products} products" in page(found) and "a half after" in page(found)
    object.__setattr__(found, "lower", found.lower * torch.linspace(1, 0.1, 301).double())
    object.__setattr__(found, "upper", found.losses + found.losses[0])
    first = int((found.lower <= goal).nonzero()[0])
    assert f"a half after {first} to more steps" in page(found) and found.steps_between(goal) == (first, None)
    assert found.steps_between(-1.0) == (None, None)


def test_where_the_linear_model_has_no_time_left_real_steps_go_on(monkeypatch):
    """They are those that the optimiser takes, and beyond the linear model nothing is compared."""
    timers = iter([lambda: True, lambda: False])  # of the linear model, and of real steps
    monkeypatch.setattr("gnlib.diagnosis.foretell._timer", lambda *_: next(timers))
    module, x = perceptron(6, 3, width=12).double(), torch.randn(9, 6).double()
    y = torch.randint(3, (9,))
    found = GaussNewton(module, x, y, "cross_entropy", dtype=F64).forecast(steps=25, rate=0.5)
    assert (len(found.losses), found.trusted, len(found.followed)) == (11, 10, 25)
    losses = train(module, x, y, "cross_entropy", SGD(module.parameters(), 0.5), 25)
    assert found.followed.tolist() == pytest.approx(losses[1:], rel=1e-9)
    assert found.steps_to(losses[-1] * (1 + 1e-6)) == 25
    assert "10 of 25 steps" in page(found) and f"beyond it to a loss of {losses[-1]:.4g}" in page(found)


def test_it_stops_at_five_percent_when_its_time_is_over():
    _, products = both(50, "sgd")
    tight, wide = products(steps=1000, rate=0.2), products(steps=1000, rate=0.2, budget=1e-9)
    assert wide.products < tight.products
    assert (wide.upper - wide.lower <= 0.05 * wide.lower + 1e-3 * wide.lower[0]).all()
    assert (tight.upper - tight.lower <= 1.1e-6 * tight.lower).all()
    found = both(9, "sgd", "cross_entropy")[1](steps=4000, budget=1e-9)
    assert len(found.losses) == 11 and found.asked == 4000 and len(found.followed) == 1
    assert "10 of 4,000 steps" in page(found) and "times as long as a real step" in page(found)


def test_many_outputs_have_their_diagonal_estimated(monkeypatch):
    matrix, products = both(50, "adam")
    expected = matrix(steps=20)
    monkeypatch.setattr(linear_by_products, "WHOLE", 149)
    found = products(steps=20, rate=expected.rate)
    assert 1e-4 < (found.losses / expected.losses - 1).abs().max() < 0.3
    assert "30 random sums" in page(found) and found.trusted <= 30
    assert found.stable_rate == pytest.approx(expected.stable_rate, rel=0.3)


def test_it_is_known_what_is_out_of_reach_where_all_of_the_measure_is():
    line, x = nn.Linear(1, 1, bias=False).double(), torch.ones(4, 1).double()
    nn.init.zeros_(line.weight)
    y = torch.tensor([[1.0], [2.0], [3.0], [4.0]]).double()
    matrix, products = (GaussNewton(line, x, y, dtype=own).forecast(steps=20) for own in (None, F64))
    assert products.unreachable == pytest.approx(matrix.unreachable, rel=1e-9) and 0 < products.unreachable < 1
    assert math.isnan(both(50, "sgd")[1](steps=3).unreachable)
    found = GaussNewton(line, x, y - y.mean(), dtype=F64).forecast(steps=3)
    assert found.losses.tolist() == [0.625] * 4 and found.unreachable == 1.0 and "out of the linear" in page(found)


class Largest(TorchDispatchMode):
    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor):
                self.entries = max(self.entries, tensor.numel())
        return out


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
@pytest.mark.parametrize("n", [40, 400])
def test_nothing_larger_than_outputs_and_parameters_is_made(n, loss):
    module, x = perceptron(5, 100), torch.randn(n, 5)
    y = torch.randn(n, 100) if loss == "mse" else torch.arange(n) % 100
    with Largest() as largest:
        found = GaussNewton(module, x, y, loss, optimizer="adam", dtype=F32).forecast(steps=12, budget=1e-3)
    p, outputs = sum(p.numel() for p in module.parameters()), 100 * n
    assert max(p, outputs) <= largest.entries <= max(p, outputs) + 2 and found.products > 0
    if loss == "mse":  # without dtype= either, where the matrix has no room
        with Largest() as largest:
            found = GaussNewton(module, x, y, memory=0.05).loss_bounds(steps=12)
        assert largest.entries <= max(found.products, 100) * outputs < outputs**2 / 10 and found.within < 1.1


@pytest.mark.bad_input
def test_what_products_cannot_follow_is_refused():
    torch.manual_seed(0)
    module, x, y = nn.Linear(6, 3).double(), torch.randn(9, 6).double(), torch.randn(9, 3).double()
    with pytest.raises(ValueError, match="weights lose what a step adds to them"):
        GaussNewton(module, x, y, dtype=torch.bfloat16).forecast()
    g = GaussNewton(module, x, y, dtype=F64)
    with pytest.raises(ValueError, match="not finite where the linear model begins; pass a lower rate"):
        g.forecast(rate=1e200, after=40, steps=50)
    with torch.no_grad():
        module.weight += 1
    with pytest.raises(ValueError, match=r"^weight of the module has changed"):
        g.forecast()

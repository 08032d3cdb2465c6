"""Forecasts without a matrix beside those from one, and beside loops written by hand."""

import copy
import math
from itertools import islice

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, RMSprop
from torch.utils._python_dispatch import TorchDispatchMode

from gnlib import GaussNewton
from gnlib.diagnosis import forecast, forecast_by_products, linear_by_products
from gnlib.diagnosis.curves import curve_between, curve_of
from gnlib.diagnosis.descent import Rule, descend
from gnlib.eigen.quadrature import Lanczos
from tests.gnlib.diagnosis.kinds import page, train
from tests.gnlib.diagnosis.test_course import KINDS
from tests.gnlib.products.test_side import IDS, NEXT, Tokens, of_tokens, seeded

F64, F32 = torch.float64, torch.float32
OPTIMIZERS = {
    "sgd": lambda m: "sgd",
    "momentum": lambda m: "momentum",
    "adam": lambda m: "adam",
    "Nesterov": lambda m: SGD(m.parameters(), 0.05, momentum=0.8, nesterov=True),
    "dampening": lambda m: SGD(m.parameters(), 0.05, momentum=0.8, dampening=0.5),
    "RMSprop": lambda m: RMSprop(m.parameters(), 0.002),
    "two rates": lambda m: SGD(halves(m, {"lr": 0.02}, {"lr": 0.05}), momentum=0.9),
    "decay": lambda m: SGD(m.parameters(), 0.05, momentum=0.9, weight_decay=0.1),
    "decay of some": lambda m: AdamW(halves(m, {"weight_decay": 0.5}, {"weight_decay": 0.0, "lr": 0.003}), 0.002),
    "some": lambda m: SGD(halves(m, {"lr": 0.1}, {"lr": 0.0}), momentum=0.9),
}


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """Let no other process that takes the time of this one end a forecast early."""
    for module in (forecast, forecast_by_products):
        monkeypatch.setattr(module, "PATIENCE", 1e3)


def halves(module, *settings):
    first, *others = module.parameters()
    return [{"params": own, **setting} for own, setting in zip(([first], others), settings, strict=True)]


def problem(kind, n, loss="mse"):
    torch.manual_seed(0)
    module, x, y = KINDS[kind]().double(), torch.randn(n, 6).double(), torch.randn(n, 3).double()
    return module, x, y if loss == "mse" else y.argmax(1)


def both(kind, n, optimizer, loss="mse", *, trained=0, dtype=F64):
    """Return the forecasts with a matrix and with products at hand."""
    module, x, y = problem(kind, n, loss)
    made = OPTIMIZERS[optimizer](module)
    if trained:
        train(module, x, y, loss, made, trained)
    return tuple(GaussNewton(module, x, y, loss, optimizer=made, dtype=own).forecast for own in (None, dtype))


def agree(found, expected, rel=1e-6):
    assert found.losses.tolist() == pytest.approx(expected.losses.tolist(), rel=rel)
    assert (found.lower <= expected.losses * (1 + rel)).all() and (expected.losses <= found.upper * (1 + rel)).all()
    assert (found.lower <= found.losses).all() and (found.losses <= found.upper).all() and found.products > 0
    assert found.stable_rate == pytest.approx(expected.stable_rate, rel=2e-3)
    assert found.followed.tolist() == pytest.approx(expected.followed.tolist(), rel=rel)


@pytest.mark.parametrize("n", [6, 50])  # few samples have fewer outputs than parameters, many have more
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_the_squared_error_is_that_of_the_matrix(kind, n, optimizer):
    matrix, products = both(kind, n, optimizer)
    expected = matrix(steps=100)
    found = products(steps=100, rate=expected.rate)
    agree(found, expected)
    assert (found.rate, found.optimizer, len(found.losses)) == (expected.rate, optimizer, 101)
    assert found.products < 100 and found.trusted <= max(expected.trusted, len(found.followed))


@pytest.mark.parametrize("optimizer", sorted(set(OPTIMIZERS) - {"sgd", "momentum", "adam"}))
@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_other_rules_are_those_of_the_matrix(optimizer, loss):
    matrix, products = both("perceptron", 9, optimizer, loss)
    expected, found = matrix(steps=40), products(steps=40)
    agree(found, expected)
    assert found.decay == pytest.approx(expected.decay) and found.left_out == expected.left_out


@pytest.mark.parametrize("optimizer", ["decay of some", "decay", "RMSprop"])
@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_the_state_of_an_optimiser_is_continued(optimizer, loss):
    matrix, products = both("perceptron", 9, optimizer, loss, trained=3)
    agree(products(steps=30), matrix(steps=30))


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_cross_entropy_is_that_of_the_matrix(optimizer):
    matrix, products = both("convolution", 20, optimizer, "cross_entropy")
    expected = matrix(steps=40)
    found = products(steps=40, rate=expected.rate)
    agree(found, expected, rel=1e-9)
    assert torch.equal(found.lower, found.upper) and found.relative_cost > 0


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_single_precision_is_right_to_its_rounding(optimizer, loss):
    matrix, products = both("perceptron", 50, optimizer, loss, dtype=F32)
    expected = matrix(steps=60)
    found = products(steps=60, rate=expected.rate)
    assert found.losses.tolist() == pytest.approx(expected.losses.tolist(), rel=1e-5)
    assert found.followed.tolist() == pytest.approx(expected.followed.tolist(), rel=1e-3)


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_the_default_rate_is_half_the_largest_stable_one(optimizer):
    found, expected = (forecast(steps=2, budget=1e-9) for forecast in both("recurrent", 9, optimizer))
    assert found.rate == pytest.approx(found.stable_rate / 2, rel=1e-3)
    assert found.rate == pytest.approx(expected.rate, rel=2e-3)


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_after_real_steps_it_goes_on_from_there(optimizer):
    matrix, products = both("perceptron", 9, optimizer)
    expected = matrix(rate=0.02, after=5, steps=40)
    found = products(rate=0.02, after=5, steps=40)
    agree(found, expected)
    assert found.after == 5 and "the first 5 steps are real" in page(found)


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr")
def test_of_tokens_it_is_the_loop_by_hand():
    """With the linear model by `torch.func.linearize`, momentum, and the loss as it is."""
    module, rate = seeded(Tokens), 0.5
    made = SGD(module.parameters(), rate, momentum=0.9)
    found = GaussNewton(module, IDS, NEXT, "cross_entropy", optimizer=made, dtype=F64).forecast(steps=25)
    start = {name: p.detach() for name, p in module.named_parameters()}
    f, push = torch.func.linearize(lambda p: torch.func.functional_call(module, p, (IDS,)), start)
    moved = {name: torch.zeros_like(p) for name, p in start.items()}
    velocity, losses = copy.deepcopy(moved), []
    pull = torch.func.vjp(lambda p: torch.func.functional_call(module, p, (IDS,)), start)[1]
    for _ in range(26):
        outputs = (f + push(moved)).requires_grad_()
        loss = of_tokens(outputs, NEXT)
        losses.append(loss.item())
        for name, g in pull(torch.autograd.grad(loss, outputs)[0])[0].items():
            velocity[name] = 0.9 * velocity[name] + g
            moved[name] = moved[name] - rate * velocity[name]
    assert found.losses.tolist() == pytest.approx(losses, rel=1e-9)
    real = seeded(Tokens)
    trainer = SGD(real.parameters(), rate, momentum=0.9)
    followed = []
    for _ in range(25):
        trainer.zero_grad()
        of_tokens(real(IDS), NEXT).backward()
        trainer.step()
        followed.append(of_tokens(real(IDS), NEXT).item())
    assert found.followed.tolist() == pytest.approx(followed, rel=1e-9)
    off = [t for t, (a, b) in enumerate(zip(followed, losses[1:], strict=True)) if not 2 / 3 <= a / b <= 1.5]
    assert found.trusted == (off[0] if off else 25)


def test_any_convex_loss_is_followed():
    module, x, y = problem("perceptron", 9)
    loss = nn.HuberLoss(delta=0.5)
    matrix, products = (GaussNewton(module, x, y, loss, dtype=own).forecast(rate=0.3, steps=30) for own in (None, F64))
    agree(products, matrix, rel=1e-9)


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
    matrix, products = both("perceptron", 20, "sgd")
    whole, found = matrix(steps=300), products(steps=300)
    for curve in (whole.lower, whole.upper):
        assert torch.equal(curve, whole.losses)
    assert whole.products == 0 and "bounds" not in page(whole) and "products" not in page(whole)
    goal = 0.5 * float(found.losses[0])
    step = int((whole.losses <= goal).nonzero()[0])
    assert found.steps_between(goal) == pytest.approx((step, step), abs=1)
    assert f"; {found.products} products" in page(found) and "a half after" in page(found)
    wide = copy.copy(found)
    object.__setattr__(wide, "lower", found.lower * torch.linspace(1, 0.1, 301).double())
    object.__setattr__(wide, "upper", found.losses + found.losses[0])
    first = int((wide.lower <= goal).nonzero()[0])
    assert f"a half after {first} to more steps" in page(wide) and wide.steps_between(goal) == (first, None)
    assert wide.steps_between(-1.0) == (None, None)


def test_it_stops_at_five_percent_when_its_time_is_over(monkeypatch):
    _, products = both("perceptron", 50, "sgd")
    tight, wide = products(steps=1000, rate=0.2), products(steps=1000, rate=0.2, budget=1e-9)
    assert wide.products < tight.products
    assert (wide.upper - wide.lower <= 0.05 * wide.lower + 1e-3 * wide.lower[0]).all()
    assert (tight.upper - tight.lower <= 1.1e-6 * tight.lower).all()


def test_a_budget_ends_the_curve_and_says_so():
    _, products = both("perceptron", 9, "sgd", "cross_entropy")
    found = products(steps=4000, budget=1e-9)
    assert len(found.losses) == 11 and found.asked == 4000 and len(found.followed) == 1
    assert "10 of 4,000 steps" in page(found) and "times as long as a real step" in page(found)
    assert "steps asked" not in page(products(steps=12)) and len(products(steps=12).losses) == 13


def test_many_outputs_have_their_diagonal_estimated(monkeypatch):
    matrix, products = both("perceptron", 50, "adam")
    expected = matrix(steps=20)
    monkeypatch.setattr(linear_by_products, "WHOLE", 149)
    found = products(steps=20, rate=expected.rate)
    assert 1e-4 < (found.losses / expected.losses - 1).abs().max() < 0.3
    assert "30 random sums" in page(found) and found.trusted <= 30
    assert found.stable_rate == pytest.approx(expected.stable_rate, rel=0.3)


def test_where_there_is_nothing_to_fall():
    module, x, _ = problem("perceptron", 9)
    found = GaussNewton(module, x, module(x).detach(), dtype=F64).forecast(steps=3)
    assert found.losses.tolist() == found.upper.tolist() == [0.0] * 4 and found.unreachable == 0.0
    line = nn.Linear(1, 1, bias=False).double()
    nn.init.zeros_(line.weight)
    found = GaussNewton(line, torch.ones(2, 1).double(), torch.tensor([[1.0], [-1.0]]).double(), dtype=F64)
    found = found.forecast(steps=3)
    assert found.losses.tolist() == [0.5] * 4 and found.unreachable == 1.0 and "out of the linear" in page(found)


def test_it_is_known_what_is_out_of_reach_where_all_of_the_measure_is():
    line = nn.Linear(1, 1, bias=False).double()
    x, y = torch.ones(4, 1).double(), torch.tensor([[1.0], [2.0], [3.0], [4.0]]).double()
    matrix, products = (GaussNewton(line, x, y, dtype=own).forecast(steps=20) for own in (None, F64))
    assert products.unreachable == pytest.approx(matrix.unreachable, rel=1e-9) and 0 < products.unreachable < 1
    assert math.isnan(both("perceptron", 50, "sgd")[1](steps=3).unreachable)


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
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 100)), torch.randn(n, 5)
    y = torch.randn(n, 100) if loss == "mse" else torch.arange(n) % 100
    with Largest() as largest:
        g = GaussNewton(module, x, y, loss, optimizer="adam", dtype=F32)
        found = g.forecast(steps=12, budget=1e-3)
    p, outputs = sum(p.numel() for p in module.parameters()), 100 * n
    assert max(p, outputs) <= largest.entries <= max(p, outputs) + 2 and found.products > 0


def test_the_module_is_left_as_it_is():
    module, x, y = problem("perceptron", 9)
    before, made = copy.deepcopy(module.state_dict()), Adam(module.parameters(), 0.01)
    GaussNewton(module, x, y, optimizer=made, dtype=F64).forecast(after=2, steps=5)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert all(p.grad is None for p in module.parameters()) and not made.state


@pytest.mark.bad_input
def test_what_makes_no_sense_is_refused():
    module, x, y = problem("perceptron", 9)
    g = GaussNewton(module, x, y, dtype=F64)
    for options, message in (
        ({"rate": 0.0}, "rate is 0.0; a positive number"),
        ({"steps": 0}, "steps is 0; a whole number of at least 1"),
        ({"after": 20, "steps": 20}, "steps is 20; a whole number of at least 21"),
        ({"budget": math.nan}, "budget is nan; a positive number"),
        ({"rate": 1e9, "after": 40, "steps": 50}, "not finite where the linear model begins; pass a lower rate"),
    ):
        with pytest.raises(ValueError, match=message):
            g.forecast(**options)
    for options, error, message in (
        ({"dtype": torch.bfloat16}, ValueError, "weights lose what a step adds to them"),
        ({"y": None}, ValueError, "y is missing; a forecast needs targets"),
        ({"optimizer": 0.1}, TypeError, "optimizer is of type float; SGD, Adam"),
        ({"optimizer": SGD(module.parameters(), 0.0)}, ValueError, "optimizer has a learning rate of 0"),
        ({"optimizer": SGD(nn.Linear(1, 1).parameters(), 0.1)}, ValueError, "optimizer has parameters that module"),
    ):
        with pytest.raises(error, match=message):
            GaussNewton(module, x, **{"y": y, "dtype": F64, **options}).forecast()
    with torch.no_grad():
        module[0].weight += 1
    with pytest.raises(ValueError, match=r"0\.weight of the module has changed"):
        g.forecast()


@pytest.mark.bad_input
def test_where_there_is_no_curvature_a_rate_has_to_be_given():
    module, x, _ = problem("perceptron", 9)
    with torch.no_grad():
        module[2].bias.copy_(torch.tensor([2000.0, 0.0, 0.0]))  # probabilities of 1 and 0
    g = GaussNewton(module, x, torch.zeros(9).long(), "cross_entropy", dtype=F64)
    with pytest.raises(ValueError, match="no curvature along any parameter"):
        g.forecast()
    found = g.forecast(rate=0.1, steps=2)
    assert found.losses.tolist() == [0.0] * 3 and found.trusted == 2

"""Bounds on steps to a goal, against descent of quadratic models; condition numbers of some of the samples."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from gnlib import GaussNewton
from gnlib.diagnosis.growth import growth_of
from tests.gnlib.derivatives import rows_of
from tests.gnlib.diagnosis.networks import LOSSES


def network(k=3, width=20, normalised=()):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, width), *normalised, nn.Tanh(), nn.Linear(width, k)).double()


def data(n=8):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, 6, dtype=torch.float64, generator=generator)
    return x, torch.randint(3, (n,), generator=generator)


@pytest.mark.parametrize("goal", [0.5, 0.1, 0.01])
@pytest.mark.parametrize(
    ("loss", "times"),  # the inverse of the largest eigenvalue
    [
        ("mse", 0.5),
        ("mse", 1.9),
        ("cross_entropy", None),
        (nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5]).double()), None),
        (nn.CrossEntropyLoss(), None),
    ],
)
def test_the_quadratic_model_of_any_loss_arrives_between_the_bounds(loss, times, goal):
    module, (x, y) = network(), data()
    y = functional.one_hot(y, 3).double() if loss == "mse" else y
    g = GaussNewton(module, x, y, loss)
    rate = (times or 1) / float(g.eigenvalues()[0])
    found = g.waiting(goal, rate=times and rate)
    assert g.effective_condition_number(goal) == g.waiting(goal).effective_condition_number
    of_outputs, f, jacobian = LOSSES.get(loss, loss), module(x).detach(), rows_of(module, x)
    slope = torch.func.grad(lambda f: of_outputs(f, y))(f).flatten()
    curvature = torch.func.jacrev(torch.func.grad(lambda f: of_outputs(f, y)))(f).reshape(len(slope), -1)
    values, change, step = [], torch.zeros_like(slope), rate * jacobian @ jacobian.T
    for _ in range(4_000):
        values.append(float(slope @ change + change @ curvature @ change / 2))
        change = change - step @ (slope + curvature @ change)
    least = -float(slope @ torch.linalg.pinv(curvature, hermitian=True, rtol=1e-12) @ slope) / 2
    above = torch.tensor(values) - least
    assert found.lower <= int((above <= goal * above[0]).nonzero()[0]) <= found.upper
    assert loss != "mse" or found.upper < 5 * found.lower + 5


def test_the_worst_targets_wait_for_the_smallest_eigenvalue_and_those_out_of_reach_for_none():
    module, (x, _) = network(k=1), data()
    values, vectors = torch.linalg.eigh(GaussNewton(module, x).gram())
    worst = GaussNewton(module, x, module(x).detach() - vectors[:, :1])
    assert worst.effective_condition_number() == pytest.approx(float(values[-1] / values[0]), rel=1e-6)
    targets = torch.tensor([[1.0, -1.0]]).expand(8, 2)
    found = GaussNewton(module, x, targets, output=lambda y: y.expand(-1, 2)).waiting(0.1)
    assert (found.lower, found.eigenvalue) == (float("inf"), 0.0)


@pytest.mark.bad_input
def test_no_targets_and_a_slope_without_curvature_are_refused():
    module, (x, _) = network(), data()
    with pytest.raises(ValueError, match="y is missing"):
        GaussNewton(module, x).waiting()
    with pytest.raises(ValueError, match="has no curvature"):
        far = torch.full((8, 3), 1e3, dtype=torch.float64)
        far[0] = module(x[:1]).detach()[0] + 0.1
        GaussNewton(module, x, far, nn.HuberLoss()).waiting()


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_the_growth_of_kappa_is_what_the_samples_have_alone(loss):
    x, y = data(40)
    y = x[:, :3] if loss == "mse" else y
    g = GaussNewton(network(width=40), x, y, loss)
    found = growth_of(g._problem)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    for n, kappa, effective in zip(found.samples, found.kappas, found.effective, strict=True):
        some = order[:n].sort().values
        alone = GaussNewton(network(width=40), x[some], y[some], loss)
        assert kappa == pytest.approx(float(alone.condition_number()), rel=1e-6)
        assert effective == pytest.approx(alone.effective_condition_number(), rel=1e-6)
    assert found.samples == (10, 20, 40) and found.kappas[0] < found.kappas[1] < found.kappas[2]
    assert found.exponent == pytest.approx(math.log2(found.kappas[2] / found.kappas[1]))
    what, of = found.words
    assert what == f"kappa grows like n^{found.exponent:.1f}" and f"{found.kappas[0]:.3g} of 10, " in of
    assert g.report(budget=1e-3).growth == found


def test_of_growth_nothing_is_said_where_it_is_not_known():
    x, y = data(40)
    assert growth_of(GaussNewton(network(), x[:16], y[:16])._problem) is None  # too few
    assert growth_of(GaussNewton(nn.Linear(6, 2).double(), x)._problem) is None  # no full rank
    normalised = GaussNewton(network(width=40, normalised=[nn.BatchNorm1d(40)]), x, mode="train")
    assert growth_of(normalised._problem) is None  # no matrix of the samples alone
    assert growth_of(GaussNewton(network(width=40), x)._problem).effective == ()

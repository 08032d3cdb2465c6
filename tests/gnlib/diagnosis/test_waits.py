"""The bounds on steps to a goal, against descent of the linear model, and of quadratic models, step by step."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import gnlib

GOALS = (0.5, 0.1, 0.01)


def network(k=3, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, k)).double()


def data(n=8, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, dtype=torch.float64, generator=generator)
    return x, torch.randint(3, (n,), generator=generator)


def first_step(losses, goal):
    return int((torch.as_tensor(losses) <= goal * losses[0]).nonzero()[0])


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("times", [0.5, 1.0, 1.9])  # the inverse of the largest eigenvalue
def test_the_linear_model_arrives_between_the_bounds(goal, times):
    g = gnlib.GaussNewton(network(), *data())
    rate = times / float(g.eigenvalues()[0])
    found = g.waiting(goal, rate=rate)
    steps = first_step(g.forecast(rate=rate, steps=20_000, budget=1e-3).losses, goal)
    assert found.lower <= steps <= found.upper < 5 * found.lower + 5
    assert g.waiting(goal).lower == pytest.approx(g.waiting(goal, rate=1 / float(g.eigenvalues()[0])).lower)
    assert g.effective_condition_number(goal) == g.waiting(goal).effective_condition_number


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize(
    "loss",
    ["cross_entropy", nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5]).double()), nn.CrossEntropyLoss()],
)
def test_the_quadratic_model_of_any_loss_arrives_between_the_bounds(loss, goal):
    module, (x, y) = network(), data()
    g = gnlib.GaussNewton(module, x, y, loss)
    found = g.waiting(goal)

    weights = dict(module.named_parameters())
    theta = torch.cat([p.detach().flatten() for p in weights.values()])

    def outputs(vector):
        parts = vector.split([p.numel() for p in weights.values()])
        given = {name: part.view_as(p) for (name, p), part in zip(weights.items(), parts, strict=True)}
        return torch.func.functional_call(module, given, x)

    of_outputs = functional.cross_entropy if isinstance(loss, str) else loss
    f = outputs(theta).detach()
    jacobian = torch.func.jacrev(outputs)(theta).flatten(0, 1).detach()
    slope = torch.func.grad(lambda f: of_outputs(f, y))(f).flatten()
    curvature = torch.func.jacrev(torch.func.grad(lambda f: of_outputs(f, y)))(f).reshape(len(slope), -1)
    values = []
    change = torch.zeros_like(slope)
    step = jacobian @ jacobian.T / float(g.eigenvalues()[0])
    for _ in range(4_000):
        values.append(float(slope @ change + change @ curvature @ change / 2))
        change = change - step @ (slope + curvature @ change)
    least = -float(slope @ torch.linalg.pinv(curvature, hermitian=True, rtol=1e-12) @ slope) / 2
    assert found.lower <= first_step(torch.tensor(values) - least, goal) <= found.upper


def test_the_worst_targets_wait_for_the_smallest_eigenvalue_as_kappa_says():
    module, (x, _) = network(k=1), data()
    values, vectors = torch.linalg.eigh(gnlib.GaussNewton(module, x).gram())
    worst = gnlib.GaussNewton(module, x, module(x).detach() - vectors[:, :1])
    assert worst.effective_condition_number() == pytest.approx(float(values[-1] / values[0]), rel=1e-6)


def test_targets_out_of_reach_are_never_met():
    class Twice(nn.Linear):
        def forward(self, x):
            return super().forward(x).expand(-1, 2)

    found = gnlib.GaussNewton(Twice(6, 1).double(), torch.eye(6), torch.tensor([[1.0, -1.0]]).expand(6, 2)).waiting(0.1)
    assert (found.lower, found.eigenvalue) == (float("inf"), 0.0)


@pytest.mark.bad_input
def test_no_targets_and_a_slope_without_curvature_are_refused():
    module, (x, _) = network(), data()
    with pytest.raises(ValueError, match="y is missing"):
        gnlib.GaussNewton(module, x).waiting()
    with pytest.raises(ValueError, match="has no curvature"):
        far = torch.full((8, 3), 1e3, dtype=torch.float64)
        far[0] = module(x[:1]).detach()[0] + 0.1
        gnlib.GaussNewton(module, x, far, nn.HuberLoss()).waiting()

"""The noun: each method means the same for all kinds of inputs, computes once, and speaks of the module as it was."""

from functools import cache

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gnlib
from gnlib import GaussNewton, problem
from tests.gnlib.networks import OneInput, TwoInputs, two_inputs

NAMES = "tokens", "mask", "features"
Y = torch.tensor([0, 1, 1, 0, 1])


def by_name(x):
    return dict(zip(NAMES, x, strict=True))


def halves(x):
    return tuple(t[:3] for t in x), tuple(t[3:] for t in x)


KINDS = {  # inputs and targets
    "tuple": lambda x: (x, Y),
    "dict": lambda x: (by_name(x), Y),
    "list of tuples": lambda x: ([*halves(x)], Y),
    "list of dicts": lambda x: ([*map(by_name, halves(x))], [Y[:3], Y[3:]]),
    "loader": lambda x: (DataLoader(TensorDataset(*x, Y), 2), None),
    "loader, targets apart": lambda x: (DataLoader(TensorDataset(*x), 3), Y),
}
METHODS = {  # numbers that a method gives
    "condition_number": lambda g: (lambda c: [c.largest, c.smallest, c.rank])(g.condition_number()),
    "eigenvalues": lambda g: g.eigenvalues(),
    "gram": lambda g: g.gram(),
    "loss_gram": lambda g: g.loss_gram(),
    "tangent_kernel": lambda g: g.tangent_kernel(),
    "jacobian": lambda g: torch.cat([*g.jacobian()], 1),
    "operator": lambda g: g.operator().dense(),
    "largest_eigenvalue": lambda g: [g.largest_eigenvalue().value],
    "by_layer": lambda g: [[s.parameters, s.trace, s.largest, s.smallest] for s in g.by_layer().layers],
    "culprits": lambda g: [share for _, share in g.culprits().samples],
    "stable_rate": lambda g: [g.stable_rate().rate],
    "forecast": lambda g: torch.cat([g.forecast(steps=20).losses, g.forecast(after=2, steps=5).losses]),
    "batch_forecast": lambda g: g.batch_forecast(2, steps=5).losses if g._problem.is_plain else [0.0],
    "advice": lambda g: [g.advice(budget=1e-3).tried["no change"].largest],
    "waiting": lambda g: [g.waiting(0.01).lower, g.waiting(0.01).eigenvalue],
    "eigenpairs": lambda g: g.eigenpairs(1, tolerance=1e-10).values,
    "trace": lambda g: [g.trace().value],
    "spectral_density": lambda g: [g.spectral_density().trace.value],
    "loss_bounds": lambda g: g.loss_bounds(steps=20).upper if g._problem.is_plain else [0.0],
    "effective_condition_number": lambda g: [g.effective_condition_number(0.01)],
    "report": lambda g: (lambda r: [r.condition.value, *r.forecast.losses[:20]])(g.report(budget=1e-3)),
    "cost": lambda g: [g.cost().operations, g.cost().gib],
}


def network(kind):
    torch.manual_seed(0)
    return kind()


assert {name for name in dir(GaussNewton) if not name.startswith("_")} == {*METHODS}


@cache
def expected(loss):
    """The numbers of all methods for the same network, with all that it takes in one tensor."""
    g = GaussNewton(network(OneInput), torch.cat([t.double() for t in two_inputs()], 1), Y, loss)
    return {name: torch.as_tensor(numbers(g), dtype=torch.float64) for name, numbers in METHODS.items()}


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_method_means_the_same_for_all_kinds_of_inputs(kind, loss):
    given, y = KINDS[kind](two_inputs())
    g = GaussNewton(network(TwoInputs), given, y, loss)
    for name, there in expected(loss).items():
        here = torch.as_tensor(METHODS[name](g), dtype=torch.float64)
        torch.testing.assert_close(here, there, rtol=1e-6, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}")
    assert [share.layer for share in g.by_layer().layers] == ["embedding", "head"]
    c = gnlib.condition_number(network(TwoInputs), given, y, loss)
    assert c.value == pytest.approx(g.condition_number().value, rel=1e-9)
    assert gnlib.report(network(TwoInputs), given, y, loss, budget=1e-3).condition == g.report(budget=1e-3).condition


def test_each_matrix_is_made_once(monkeypatch):
    made = []
    whole = problem.layered_gram
    monkeypatch.setattr(problem, "layered_gram", lambda *given: made.append(given) or whole(*given))
    g = GaussNewton(network(OneInput), torch.cat([t.double() for t in two_inputs()], 1), Y, "cross_entropy")
    assert not made
    for name in ("eigenvalues", "by_layer", "culprits", "stable_rate", "condition_number", "gram"):
        METHODS[name](g)
    g.forecast(steps=20)
    assert len(made) == 1


@pytest.mark.parametrize("change", ["parameter", "statistics"])
def test_a_module_that_has_changed_since_is_refused(change):
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double().eval()
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    g = GaussNewton(net, x, mode="eval")
    kernel = g.gram()
    if change == "parameter":
        net(x).sum().backward()
        torch.optim.SGD(net.parameters(), 0.1).step()
    else:
        net.train()(x)
    for name in METHODS:
        with pytest.raises(ValueError, match="has changed since this object was made"):
            getattr(g, name)(*[2] * (name == "batch_forecast"))
    assert not torch.equal(GaussNewton(net, x, mode="eval").gram(), kernel)


def test_a_result_may_be_changed_in_place():
    g = GaussNewton(nn.Linear(2, 1), torch.ones(3, 2))
    assert repr(g) == "GaussNewton(Linear, n = 3, k = 1, p = 3, loss = mse)"
    for matrix in (g.gram, g.loss_gram, g.tangent_kernel):
        before = matrix().clone()
        matrix().zero_()
        assert torch.equal(matrix(), before)


def test_the_mode_of_the_module_is_kept():
    net = nn.Sequential(nn.Linear(3, 2), nn.Dropout()).eval()
    GaussNewton(net, torch.ones(5, 3)).by_layer()
    assert not any(m.training for m in net.modules())
    with pytest.raises(ValueError, match="say which function is meant"):
        GaussNewton(net.train(), torch.ones(5, 3))


RENAMED = {"largest_stable_rate": "stable_rate", "gauss_newton_gram": "gram", "gauss_newton_operator": "operator"}


@pytest.mark.parametrize("old", [*RENAMED, "eigenvalues", "by_layer", "culprits", "forecast", "loss_gram", "cost"])
def test_a_renamed_function_names_the_new_call(old):
    x, new = torch.eye(3), RENAMED.get(old, old)
    with pytest.warns(DeprecationWarning, match=rf"GaussNewton\(module, x, ...\)\.{new}\("):
        was = getattr(gnlib, old)(nn.Linear(3, 2), x, torch.zeros(3, 2) if old == "forecast" else None)
    assert type(was) is type(getattr(GaussNewton(nn.Linear(3, 2), x, torch.zeros(3, 2)), new)())

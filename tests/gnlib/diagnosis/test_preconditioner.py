"""Preconditioners: the numbers of torch's own optimisers, the diagonal of the matrix, and what is refused."""

import pytest
import torch
from torch import nn

from gnlib.diagnosis.preconditioner import FLOOR, optimizer_of, preconditioned_gram, preconditioner_of, rule_of
from gnlib.jacobian.passes import vjp
from gnlib.jacobian.trial import networks_of
from tests.gnlib.derivatives import by_name, rows_of


def network(width=7):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 2)).double(), torch.randn(5, 3).double()


def prepared(optimizer, module, x):
    networks = networks_of(module, x)
    leaves = {name: p.detach().clone() for name, p in module.named_parameters()}
    made = optimizer_of(optimizer, networks[0], leaves, 0.1)
    gradient = vjp(networks, 4.0)(module(x).detach())
    return networks, made, gradient, preconditioner_of(made, networks, leaves, gradient, 4.0)


def with_steps(make, steps=3):
    """A module, its samples, and an optimiser that has taken some steps."""
    module, x = network()
    optimizer = make(module.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        module(x).square().sum().backward()
        optimizer.step()
    return module, x, optimizer


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.8),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.8, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.7, 0.95)),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.0, eps=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
    "rmsprop without momentum": lambda p: torch.optim.RMSprop(p, lr=0.01),
}


@pytest.mark.parametrize("memory", [4.0, 2e-6], ids=["one block", "many"])
def test_the_preconditioned_matrix_is_what_it_says(memory):
    module, x = network()
    networks = networks_of(module, x)
    factors = {name: torch.rand_like(p) + 0.1 for name, p in networks[0].parameters.items()}
    expected = sum(j * factors[name].flatten() @ j.mT for name, j in by_name(module, x).items()) / len(x)
    found = preconditioned_gram(networks, factors, max(memory, 1e-3))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_without_a_state_it_is_the_root_of_the_diagonal_of_the_size_of_the_gradient():
    module, x = network()
    with torch.no_grad():
        module[0].weight[0] *= 1e3  # a unit that is saturated, with derivatives far below the floor
    _, _, gradient, found = prepared("adam", module, x)
    whole = rows_of(module, x).square().sum(0) / len(x)
    assert whole.min() < FLOOR**2 * whole.mean()
    p = whole.clamp_min(FLOOR**2 * whole.mean()).sqrt()
    g = torch.cat([g.flatten() for g in gradient.values()])
    expected = 1 / (p * g.norm() / p.norm() + 1e-8)
    torch.testing.assert_close(torch.cat([f.flatten() for f in found.factors.values()]), expected)
    assert found.momentum is None


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_of_torch_is_what_the_rule_and_the_factors_say(name):
    """The next step of the optimiser itself, with its P held: its own eps and corrections, its own buffers."""
    module, x, optimizer = with_steps(OPTIMIZERS[name])
    _, made, _, found = prepared(optimizer, module, x)
    rule = rule_of(made)
    assert rule.rate == 0.1
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    optimizer.param_groups[0]["lr"] = rule.rate
    for p in module.parameters():
        p.grad = torch.zeros_like(p)  # what remains is the momentum
    if "betas" in optimizer.param_groups[0]:
        optimizer.param_groups[0]["betas"] = (rule.momentum, 1 - 2**-53)
        for state in optimizer.state.values():  # so that P stays, corrected as it was
            for key in {"exp_avg_sq", "max_exp_avg_sq"} & {*state}:
                state[key] *= (1 - (1 - 2**-53) ** 4) / (1 - made.param_groups[0]["betas"][1] ** 3)
    if "alpha" in optimizer.param_groups[0]:
        optimizer.param_groups[0]["alpha"] = 1.0
    optimizer.step()
    weight = rule.momentum * (rule.momentum if rule.nesterov else 1)
    weight *= rule.rate / (1 - rule.momentum ** (rule.taken + 1) if rule.averaged else 1)
    for name, p in module.named_parameters():
        step = 0.0 if found.momentum is None else weight * found.momentum[name]
        torch.testing.assert_close(p.detach(), before[name] - step, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", ["adam", "amsgrad", "adamw", "rmsprop"])
def test_factors_are_those_of_the_state(name):
    module, x, optimizer = with_steps(OPTIMIZERS[name])
    *_, found = prepared(optimizer, module, x)
    group = optimizer.param_groups[0]
    for key, p in module.named_parameters():
        state = optimizer.state[p]
        squares = state.get("square_avg", state.get("max_exp_avg_sq", state.get("exp_avg_sq")))
        if "betas" in group:
            squares = squares / (1 - group["betas"][1] ** 3)
        torch.testing.assert_close(found.factors[key], 1 / (squares.sqrt() + group["eps"]))


def test_the_optimiser_and_the_module_are_left_as_they_are():
    module, x, optimizer = with_steps(OPTIMIZERS["adam"])
    before = [p.detach().clone() for p in module.parameters()]
    state = [s["exp_avg"].clone() for s in optimizer.state.values()]
    _, made, gradient, _ = prepared(optimizer, module, x)
    for group in made.param_groups:
        for leaf, g in zip(group["params"], gradient.values(), strict=True):
            leaf.grad = g
    made.step()
    assert optimizer.param_groups[0]["lr"] == 0.01
    for p, was in zip(module.parameters(), before, strict=True):
        assert torch.equal(p, was)
    for s, was in zip(optimizer.state.values(), state, strict=True):
        assert torch.equal(s["exp_avg"], was) and int(s["step"]) == 3


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: "newton", "'sgd', 'momentum', 'adam'"),
        (lambda p: torch.optim.Rprop(p), "Rprop; SGD, Adam"),
        (lambda p: torch.optim.Adam(p, maximize=True), "maximize=True; pass one that goes down"),
        (lambda p: torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1), "parameters that module has not"),
    ],
)
def test_what_a_forecast_cannot_follow_is_refused(make, message):
    module, x = network()
    with pytest.raises((TypeError, ValueError), match=message):
        prepared(make([*module.parameters()]), module, x)

"""Optimisers with weight decay, and groups of parameters with settings of their own, against real training."""

import copy

import pytest
import torch
from torch.optim import SGD, Adam, AdamW, RMSprop

import gnlib
from gnlib import GaussNewton
from gnlib.diagnosis.preconditioner import optimizer_of, preconditioner_of
from gnlib.jacobian.plan import BudgetError
from gnlib.jacobian.trial import networks_of
from tests.gnlib.diagnosis.kinds import LOSSES, page, train
from tests.gnlib.diagnosis.linear_kinds import MODULES, Additive, K, Polynomial

pytestmark = pytest.mark.slow  # `make check` leaves them out, `make test` does not

N, STEPS = 8, 150


def problem(kind="mse", make=Additive):
    torch.manual_seed(3)
    module, x, y = make().double(), torch.randn(N, 5).double(), torch.randn(N, K).double()
    return module, x, y if kind == "mse" else y.argmax(1)


def groups_of(module, *settings):
    return [{"params": [*own], **setting} for own, setting in zip(module.parts(), settings, strict=True)]


LINEAR = {
    "decay": lambda m: SGD(m.parameters(), 0.05, weight_decay=0.3),
    "momentum and decay": lambda m: SGD(m.parameters(), 0.02, momentum=0.9, weight_decay=0.05),
    "Nesterov and decay": lambda m: SGD(m.parameters(), 0.02, momentum=0.8, nesterov=True, weight_decay=0.2),
    "dampening": lambda m: SGD(m.parameters(), 0.1, momentum=0.9, dampening=0.6),
    "dampening and decay": lambda m: SGD(m.parameters(), 0.1, momentum=0.7, dampening=0.9, weight_decay=0.1),
    "dampening without momentum": lambda m: SGD(m.parameters(), 0.05, dampening=0.9),
    "rates": lambda m: SGD(groups_of(m, {"lr": 0.1}, {"lr": 0.003}, {"lr": 0.03})),
    "rates with momentum": lambda m: SGD(groups_of(m, {"lr": 0.01}, {"lr": 0.03}, {"lr": 0.001}), momentum=0.9),
    "no decay of one": lambda m: SGD(
        groups_of(m, {"weight_decay": 0.0}, {"weight_decay": 0.4}, {"weight_decay": 0.0}), 0.03, momentum=0.9
    ),
    "Nesterov in one": lambda m: SGD(
        groups_of(m, {"nesterov": True}, {"momentum": 0.5}, {"momentum": 0.0, "lr": 0.1}), 0.02, momentum=0.9
    ),
    "all at once": lambda m: SGD(
        groups_of(
            m,
            {"lr": 0.05, "weight_decay": 0.1},
            {"lr": 0.01, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.02},
            {"lr": 0.02, "momentum": 0.8, "nesterov": True},
        )
    ),
    "a part that stands still": lambda m: SGD(groups_of(m, {"lr": 0.0}, {"lr": 0.05}, {"lr": 0.02}), momentum=0.5),
}


@pytest.mark.parametrize("taken", [0, 4])
@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("name", LINEAR)
def test_what_is_linear_is_foretold_exactly(name, kind, taken):
    module, x, y = problem(kind, MODULES[[*LINEAR].index(name) % len(MODULES)])  # each of them is linear
    optimizer = LINEAR[name](module)
    train(module, x, y, kind, optimizer, taken - 1)
    found = GaussNewton(module, x, y, kind, optimizer=optimizer).forecast(steps=STEPS)
    assert found.losses.tolist() == pytest.approx(train(module, x, y, kind, optimizer, STEPS), rel=1e-9)
    assert found.trusted == STEPS and found.left_out == ()


@pytest.mark.parametrize("name", sorted(set(LINEAR) - {"a part that stands still"}))
def test_below_the_largest_stable_rate_it_settles_and_above_it_explodes(name):
    module, x, y = problem(make=MODULES[[*LINEAR].index(name) % len(MODULES)])
    optimizer = LINEAR[name](module)
    g = GaussNewton(module, x, y, optimizer=optimizer)
    share = g.stable_rate().rate / optimizer.param_groups[0]["lr"]
    assert g.forecast(steps=1).stable_rate == pytest.approx(g.stable_rate().rate, rel=1e-6)
    for factor, stable in ((0.95, True), (1.05, False)):
        moved = copy.deepcopy(module)
        trainer = LINEAR[name](moved)
        for group in trainer.param_groups:
            group["lr"] *= factor * share
        losses = train(moved, x, y, "mse", trainer, 799)
        assert (max(losses[-100:]) < 10 * losses[0]) == stable


def settings_of_adam(module):
    return groups_of(
        module,
        {"lr": 0.02, "weight_decay": 0.0},
        {"lr": 0.01, "weight_decay": 3.0, "eps": 0.1},
        {"lr": 0.005, "betas": (0.5, 0.9), "weight_decay": 1.0},
    )


@pytest.mark.parametrize("kind", LOSSES)
def test_decay_of_adamw_is_followed_with_its_denominators_held(kind):
    """A literal loop over groups, with the denominators of the optimiser as they are, and its own corrections."""
    module, x, y = problem(kind)
    optimizer, taken = AdamW(settings_of_adam(module)), 5
    train(module, x, y, kind, optimizer, taken - 1)
    found = GaussNewton(module, x, y, kind, optimizer=optimizer).forecast(steps=STEPS)
    held = []
    for group in optimizer.param_groups:
        for p in group["params"]:
            state, (b, c) = optimizer.state[p], group["betas"]
            divisor = (state["exp_avg_sq"] / (1 - c**taken)).sqrt() + group["eps"]
            held.append((p, group["lr"], group["weight_decay"], b, divisor, state["exp_avg"].clone()))
    losses = []
    for step in range(taken + 1, taken + STEPS + 2):
        loss = LOSSES[kind](module(x), y)
        losses.append(loss.item())
        gradients = torch.autograd.grad(loss, [p for p, *_ in held])
        with torch.no_grad():
            for (p, rate, decay, b, divisor, mean), g in zip(held, gradients, strict=True):
                mean.mul_(b).add_((1 - b) * g)
                p.mul_(1 - rate * decay).sub_(rate * mean / (1 - b**step) / divisor)
    assert found.losses.tolist() == pytest.approx(losses, rel=1e-9)
    assert found.decay == pytest.approx(1 - (1 - 0.01 * 3.0) ** STEPS)
    assert "of the weights: counted in the forecast" in page(found)


def test_a_large_eps_is_that_of_descent():
    """With an eps far above all gradients Adam takes their mean, over eps."""
    module, x, y = problem()
    adam = GaussNewton(module, x, y, optimizer=Adam(module.parameters(), 1.0, eps=1e6)).stable_rate()
    plain = GaussNewton(module, x, y, optimizer=SGD(module.parameters(), 1.0, momentum=0.9, dampening=0.9))
    assert adam.rule.limit / adam.largest == pytest.approx(1e6 * plain.stable_rate().rate, rel=1e-3)
    usual = GaussNewton(module, x, y, optimizer=Adam(module.parameters(), 1e-3)).forecast(steps=50)
    cautious = GaussNewton(module, x, y, optimizer=Adam(module.parameters(), 1e-3, eps=1.0)).forecast(steps=50)
    assert cautious.losses[-1] > 1.01 * usual.losses[-1]


def test_a_fresh_adam_has_the_eps_of_each_group():
    module, x, _ = problem()
    networks = networks_of(module, x)
    leaves = {name: p.detach().clone() for name, p in module.named_parameters()}
    gradient = {name: torch.ones_like(p) for name, p in leaves.items()}

    def factors(eps):
        adam = Adam(groups_of(module, {}, {"eps": eps}, {}), 1e-3, eps=0.0)
        return preconditioner_of(optimizer_of(adam, networks[0], leaves, 1.0), networks, leaves, gradient, 4.0).factors

    small, large = factors(0.0), factors(0.3)
    for name, factor in small.items():
        expected = 1 / (1 / factor + 0.3) if name.startswith("features") else factor
        torch.testing.assert_close(large[name], expected)


@pytest.mark.parametrize("after_step", [0, 3])
def test_a_scheduler_that_begins_at_nothing_has_its_rate_to_come(after_step):
    module, x, y = problem()
    optimizer = SGD(module.parameters(), 0.04)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / 8, 1))
    for _ in range(after_step):
        optimizer.step()
        scheduler.step()
    found = GaussNewton(module, x, y, optimizer=optimizer).forecast(steps=20)
    assert found.rate == pytest.approx(0.04 * (after_step / 8 or 1))
    assert "left out the scheduler: the rate is held" in page(found)
    same = GaussNewton(module, x, y, optimizer=SGD(module.parameters(), found.rate)).forecast(steps=20)
    assert torch.equal(found.losses, same.losses)


@pytest.mark.bad_input
def test_a_rate_of_nothing_is_refused():
    module, x, y = problem()
    g = GaussNewton(module, x, y, optimizer=SGD(module.parameters(), 0.0))
    with pytest.raises(ValueError, match="optimizer has a learning rate of 0, with which nothing moves; pass rate="):
        g.forecast()
    assert g.forecast(rate=0.1, steps=2).rate == 0.1


def test_rates_keep_their_proportion():
    module, x, y = problem()
    optimizer = SGD(groups_of(module, {"lr": 0.1}, {"lr": 0.02}, {"lr": 0.05}))
    found = GaussNewton(module, x, y, optimizer=optimizer).forecast(rate=0.05, steps=30)
    halved = SGD(groups_of(module, {"lr": 0.05}, {"lr": 0.01}, {"lr": 0.025}))
    assert found.losses.tolist() == pytest.approx(train(module, x, y, "mse", halved, 30), rel=1e-10)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda p: Adam(p, 1e-3, weight_decay=0.1), "the weight decay, which comes to gradients before"),
        (lambda p: RMSprop(p, 1e-3, weight_decay=0.1), "the weight decay, which comes to gradients before"),
        (lambda p: RMSprop(p, 1e-3, centered=True), "that it is centred"),
    ],
)
def test_what_is_left_out_is_said(make, what):
    module, x, y = problem()
    found = GaussNewton(module, x, y, optimizer=make(module.parameters())).forecast(steps=5)
    assert f"left out {what}" in page(found)


NOT_FOLLOWED = [torch.optim.RAdam, torch.optim.NAdam, torch.optim.Adagrad, torch.optim.Adafactor, torch.optim.Rprop]


@pytest.mark.parametrize("make", NOT_FOLLOWED)
def test_a_report_goes_on_without_an_optimiser_that_is_not_followed(make):
    module, x, y = problem()
    optimizer = make(module.parameters(), lr=0.01)
    found, plain = gnlib.report(module, x, y, optimizer=optimizer, budget=1e-3), gnlib.report(module, x, y, budget=1e-3)
    assert f"found {make.__name__} is not followed: all lines are of gradient descent" in page(found)
    assert torch.equal(found.forecast.losses, plain.forecast.losses) and len(found.rates) == 2
    with pytest.raises(TypeError, match=f"optimizer is of type {make.__name__}; SGD, Adam"):
        GaussNewton(module, x, y, optimizer=optimizer).forecast()


@pytest.mark.parametrize(
    "make",
    [
        lambda m: AdamW([{"params": [*m.parts()[0]], "weight_decay": 0.1}, {"params": [*m.parts()[1]], "lr": 0.1}]),
        lambda m: SGD([{"params": [*own], "lr": 0.1 / (j + 1)} for j, own in enumerate(m.parts())], momentum=0.9),
        lambda m: RMSprop(m.parameters(), 1e-3, centered=True, momentum=0.5),
    ],
)
def test_a_report_follows_groups(make):
    module, x, y = problem(make=Polynomial)
    optimizer = make(module)
    for _ in range(2):  # ask, follow, ask again
        found = gnlib.report(module, x, y, optimizer=optimizer, budget=1e-3)
        assert found.rates[2].rate == pytest.approx(found.forecast.stable_rate, rel=1e-6)
        train(module, x, y, "mse", optimizer, 2)


def test_the_matrices_of_many_groups_are_counted_before_they_are_made():
    """Each kind of group has a matrix of its own, beside which the next is made."""
    torch.manual_seed(0)
    module, x = torch.nn.Sequential(torch.nn.Linear(5, 9), torch.nn.Tanh(), torch.nn.Linear(9, 40)), torch.randn(30, 5)
    groups = [{"params": [p], "momentum": 0.1 * i} for i, p in enumerate(module.parameters())]
    optimizer = SGD(groups, 0.01)
    rows = 30 * 40
    one = 8 * rows**2 / 2**30
    with pytest.raises(BudgetError, match="of an optimiser that has 4 kinds of groups") as refused:
        GaussNewton(module, x, memory=5 * one, optimizer=optimizer).stable_rate()
    assert 5 * one < refused.value.needed < 12 * one
    enough = GaussNewton(module, x, memory=1.1 * refused.value.needed, optimizer=optimizer).stable_rate()
    assert enough.rate == pytest.approx(GaussNewton(module, x, optimizer=optimizer).stable_rate().rate)

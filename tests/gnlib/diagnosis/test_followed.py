"""Real steps beside the forecast, and what is trusted of it, on networks of many kinds."""

import copy

import pytest
from torch.optim import SGD, Adam, AdamW, RMSprop

from gnlib import GaussNewton
from gnlib.diagnosis.model import follow, linearise, trusted
from gnlib.diagnosis.preconditioner import optimizer_of
from gnlib.jacobian.passes import outputs_of
from gnlib.jacobian.trial import networks_of
from gnlib.losses import loss_of
from tests.gnlib.diagnosis.kinds import CASES, drawn, page, train

pytestmark = pytest.mark.slow  # `make check` leaves them out, `make test` does not

AFTER = 100  # steps of real training that a forecast is held against


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("name", CASES)
def test_nothing_is_trusted_where_it_is_off(name, optimizer):
    net, x, y, loss = drawn(name)
    found = GaussNewton(net, x, y, loss, optimizer=optimizer).forecast()
    make = {"sgd": SGD, "adam": Adam}[optimizer]
    real = train(net, x, y, loss, make(net.parameters(), found.rate), AFTER)
    first = real[0]
    for t, (a, b) in enumerate(zip(real, found.losses.tolist(), strict=False)):
        if t <= found.trusted:
            assert max((a + 1e-7 * first) / (b + 1e-7 * first), (b + 1e-7 * first) / (a + 1e-7 * first)) <= 1.51
    assert found.followed.tolist() == pytest.approx(real[1 : len(found.followed) + 1], rel=1e-6)


FOLLOWED = {
    "groups": lambda m: AdamW(
        [{"params": m[0].parameters(), "weight_decay": 0.3}, {"params": m[1].parameters(), "lr": 3e-3}], lr=0.01
    ),
    "decay in the gradient": lambda m: Adam(m.parameters(), 0.01, weight_decay=0.3),
    "momentum": lambda m: SGD(m.parameters(), 0.01, momentum=0.9, weight_decay=0.1),
    "centred": lambda m: RMSprop(m.parameters(), 1e-3, centered=True),
}


@pytest.mark.parametrize("taken", [0, 3])
@pytest.mark.parametrize("name", FOLLOWED)
def test_steps_are_those_of_the_optimiser(name, taken):
    net, x, y, loss = drawn("splines")
    optimizer = FOLLOWED[name](net)
    if taken:
        train(net, x, y, loss, optimizer, taken - 1)
    found = GaussNewton(net, x, y, loss, optimizer=optimizer).forecast(steps=50)
    real = train(net, x, y, loss, optimizer, 30)
    assert found.followed.tolist() == pytest.approx(real[1:], rel=1e-9)
    assert found.trusted <= 30 or (name == "momentum" and not found.left_out)


def test_a_head_of_zeros_is_not_trusted_beyond_what_was_followed():
    net, x, y, loss = drawn("a head of zeros")
    found = GaussNewton(net, x, y, loss).forecast()
    real = train(copy.deepcopy(net), x, y, loss, SGD(net.parameters(), found.rate), 0)
    assert found.losses[0] == pytest.approx(real[0]) and found.trusted < 30
    networks, leaves = networks_of(net, x), {name: p.detach().clone() for name, p in net.named_parameters()}
    target = loss_of(loss, y, outputs_of(networks, 4.0))
    linear = linearise(networks, target, optimizer_of("sgd", networks[0], leaves, 1.0), leaves, 4.0)
    _, kept = follow(linear.space, linear.rules(found.rate), 1000)
    assert trusted(networks, target, linear, kept, 4.0) <= found.trusted  # by gradients, without a step


def test_real_steps_reach_goals():
    net, x, y, loss = drawn("a head of zeros")
    found = GaussNewton(net, x, y, loss).forecast()
    best = float(found.followed.min())
    step = int(found.followed.argmin()) + 1
    assert step > found.trusted and found.steps_to(best) == step
    text = page(found)
    off = max(found.followed[found.trusted] / found.losses[found.trusted + 1], 0)
    off = max(off, 1 / off)
    assert f"followed 30 real steps: within {found.within:.3g} of the forecast until step {found.trusted}," in text
    assert f"off by {off:.3g} at step {found.trusted + 1}" in text


def test_a_budget_is_what_real_steps_may_take():
    net, x, y, loss = drawn("sets")
    g = GaussNewton(net, x, y, loss)
    assert len(g.forecast(budget=1e-9).followed) == 1
    assert len(g.forecast(budget=100.0, steps=45).followed) == 45
    assert "followed 1 real step: within" in page(g.forecast(steps=1))


@pytest.mark.bad_input
def test_a_budget_of_nothing_is_refused():
    net, x, y, loss = drawn("sets")
    with pytest.raises(ValueError, match=r"budget is 0\.0; a positive number was expected"):
        GaussNewton(net, x, y, loss).forecast(budget=0.0)

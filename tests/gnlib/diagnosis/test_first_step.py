"""The first step of Adam, and the largest rate that it leaves, against real training."""

import copy
import math

import pytest
import torch
from torch.optim import Adam

from gnlib import GaussNewton
from gnlib.diagnosis.first_step import longest_step
from gnlib.diagnosis.preconditioner import optimizer_of
from gnlib.jacobian.passes import outputs_of
from gnlib.jacobian.trial import networks_of
from gnlib.losses import loss_of
from tests.gnlib.diagnosis.kinds import CASES, drawn, loss_at, train

pytestmark = pytest.mark.slow  # `make check` leaves them out, `make test` does not


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(CASES) - {"an adapter"}))  # whose loss no rate makes ten times larger
def test_adam_is_stable_below_its_rate_and_not_far_above(name):
    """Against the largest rate of a grid at which no loss of 30 steps is ten times that at the start."""
    net, x, y, loss = drawn(name)
    found = GaussNewton(net, x, y, loss, optimizer="adam").stable_rate().rate

    def rises(rate):
        moved = copy.deepcopy(net)
        losses = train(moved, x, y, loss, Adam(moved.parameters(), rate), 30)
        return not max(losses) < 10 * losses[0] or not math.isfinite(losses[-1])

    rate = next(r for r in (found * 2.0**j for j in range(8, -8, -1)) if not rises(r))
    assert rate / 12 <= found <= rate


def test_the_first_step_is_that_of_signs():
    net, x, y, loss = drawn("sets")
    networks, leaves = networks_of(net, x), {name: p.detach().clone() for name, p in net.named_parameters()}
    target = loss_of(loss, y, outputs_of(networks, 4.0))
    found = 6 * longest_step(networks, target, optimizer_of("adam", networks[0], leaves, 0.3), leaves, 4.0)
    value = loss_at(net, x, y, loss)
    gradients = torch.autograd.grad(value, [*net.parameters()])

    def after(rate):
        moved = copy.deepcopy(net)
        with torch.no_grad():
            for p, g in zip(moved.parameters(), gradients, strict=True):
                p -= rate * g.sign()
        return loss_at(moved, x, y, loss).item()

    assert after(found) < 10 * value.item() < after(1.1 * found)
    assert longest_step(networks, target, optimizer_of("sgd", networks[0], leaves, 0.3), leaves, 4.0) == math.inf


def test_a_state_makes_its_own_first_step():
    """A mean of squares from before that is large makes the first step short, and its rate large."""
    net, x, y, loss = drawn("gated convolutions")
    optimizer = Adam(net.parameters(), 1e-3)
    train(net, x, y, loss, optimizer, 5)
    before = GaussNewton(net, x, y, loss, optimizer=optimizer).stable_rate()
    for state in optimizer.state.values():
        state["exp_avg_sq"] *= 1e8
    after = GaussNewton(net, x, y, loss, optimizer=optimizer).stable_rate()
    assert after.longest == pytest.approx(1e4 * before.longest, rel=0.15)

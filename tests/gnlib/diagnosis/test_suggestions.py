"""Suggestions are measured: what is done as they say has the condition number that they give."""

import sys

import pytest
import torch
from torch import nn

import gnlib
from gnlib import report
from gnlib.diagnosis.changes import fresh_norms
from gnlib.diagnosis.suggestions import MOST, WORTH
from tests.gnlib.diagnosis.kinds import page
from tests.gnlib.networks import Whole

pytestmark = pytest.mark.slow  # `make check` leaves them out, `make test` does not


def drawn(n=12, d=4, width=30):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(d, width), nn.Tanh(), nn.Linear(width, 2)).double()
    return net, torch.randn(n, d, dtype=torch.float64)


def by_name(found):
    return {s.what: s.after for s in found.suggestions}


def test_centring_the_inputs():
    net, x = drawn()
    suggested = by_name(report(net, x + 3))["centre the inputs"]
    assert suggested.value == pytest.approx(float(gnlib.condition_number(net, x - x.mean(0))), rel=1e-6)
    assert "centre the inputs" not in by_name(report(net, x - x.mean(0)))


def test_channels_are_centred_one_by_one():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(2, 6, 3), nn.Tanh(), nn.Flatten(), nn.Linear(6 * 9, 2)).double()
    x = torch.randn(6, 2, 5, 5, dtype=torch.float64) + torch.tensor([2.0, 5.0])[:, None, None]
    expected = float(gnlib.condition_number(net, x - x.mean((0, 2, 3), keepdim=True)))
    assert by_name(report(net, x))["centre the inputs"].value == pytest.approx(expected, rel=1e-6)


def test_whitening_the_inputs():
    net, x = drawn()
    x = x * torch.tensor([1.0, 1.0, 1e-2, 1e-2])
    suggested = by_name(report(net, x))["whiten the inputs"]
    assert suggested.value == pytest.approx(float(gnlib.condition_number(net, gnlib.whiten(x))), rel=1e-6)


def test_a_rate_of_its_own_for_a_layer():
    net, x = drawn(width=5)  # so that the head alone cannot fit all targets
    with torch.no_grad():
        net[2].weight.mul_(1e-2)
    found = by_name(report(net, x))
    name = "give 0 a learning rate 10 times larger"
    assert name in found
    jacobian = torch.cat([*gnlib.GaussNewton(net, x).jacobian()], 1)  # last parameters first
    scaled = jacobian.clone()
    scaled[:, 12:] *= 10**0.5
    values = torch.linalg.svdvals(scaled)
    assert found[name].value == pytest.approx((values[0] / values[-1]).square().item(), rel=1e-5)


def test_dropping_a_duplicate():
    net, x = drawn()
    x[5] = x[2]
    after = by_name(report(net, x))["drop sample 5"]
    assert after.rank == 22
    kept = torch.cat([x[:5], x[6:]])
    assert after.value == pytest.approx(float(gnlib.condition_number(net, kept)), rel=1e-6)


def test_a_sample_that_is_only_nearly_another_one_is_kept():
    net, x = drawn()
    x[5] = x[2] + 1e-4
    found = report(net, x)
    assert "samples 2 and 5 are near each other" in page(found)
    assert not any("drop" in what for what in by_name(found))


def test_letting_a_fresh_normalisation_see_the_batch():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 20), nn.BatchNorm1d(20), nn.Tanh(), nn.Linear(20, 2)).double()
    x = 0.05 * torch.randn(10, 4, dtype=torch.float64)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    found = report(net, x, mode="eval")
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert "1 batch normalisations are fresh" in page(found) and len(fresh_norms(net)) == 1
    suggested = by_name(found)["pass the batch once in training mode"]
    net[1].momentum = 1.0
    with torch.no_grad():
        net.train()(x)
    assert suggested.value == pytest.approx(float(gnlib.condition_number(net.eval(), x)), rel=1e-6)
    assert fresh_norms(net) == []


def test_three_at_most_and_each_of_them_helps():
    net, x = drawn()
    found = report(net, (x + 3) * torch.tensor([1.0, 1.0, 1e-2, 1e-2]))
    gains = [found.condition.value / s.after.value for s in found.suggestions]
    assert len(gains) == MOST and gains == sorted(gains, reverse=True) and gains[-1] >= WORTH


def steps_by_hand(net, x, y, goal):
    """Full steps of the linear model at half of the largest stable rate, parameters and all."""
    jacobian = torch.cat([*gnlib.GaussNewton(net, x).jacobian()], 1)
    n, f = len(x), net(x).detach().flatten()
    largest = torch.linalg.matrix_norm(jacobian, 2).square() / n
    for step in range(2000):
        if (f - y.flatten()).square().sum() / (2 * n) <= goal * (1 + 1e-9):  # which a step may reach exactly
            return step
        f = f - jacobian @ (jacobian.T @ (f - y.flatten()) / n) / largest
    raise AssertionError("The goal was not reached.")


def test_with_targets_steps_are_what_counts():
    net, x = drawn()
    x, y = x + 3, torch.randn(12, 2, dtype=torch.float64)
    found = report(net, x, y)
    pace = {s.what: s.pace for s in found.suggestions}["centre the inputs"]
    assert pace.goal <= found.forecast.losses[0] / 10 or pace.before == 1000
    assert pace.before == steps_by_hand(net, x, y, pace.goal)
    assert pace.steps == steps_by_hand(net, x - x.mean(0), y, pace.goal)
    gains = [s.pace.before / max(s.pace.steps, 1) for s in found.suggestions]
    assert gains == sorted(gains, reverse=True) and gains[-1] >= WORTH
    assert f"{pace.steps} steps of gradient descent, not {pace.before}, to a loss of" in page(found)


def test_a_normalisation_is_measured():
    net, x, y = of_a_chain(0)
    normed = nn.Sequential(net[0], nn.LayerNorm(30), net[1], net[2], nn.LayerNorm(30), *net[3:]).double()
    what = "add LayerNorm after 0, 2"
    found = {s.what: s for s in report(net, x, y, loss="cross_entropy").suggestions}[what]
    expected = gnlib.GaussNewton(normed, x, y, loss="cross_entropy").eigenvalues()
    assert found.after.value == pytest.approx((expected[0] / expected[-1]).item(), rel=1e-5)
    course = gnlib.GaussNewton(normed, x, y, "cross_entropy").forecast().losses
    assert int((course <= found.pace.goal).nonzero()[0]) == found.pace.steps < found.pace.before


def of_a_chain(shift=3):
    torch.manual_seed(0)
    layers = nn.Linear(4, 30), nn.ReLU(), nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 2)
    return nn.Sequential(*layers).double(), torch.randn(12, 4, dtype=torch.float64) + shift, torch.arange(12) % 2


OPTIMIZERS = {
    "Adam": torch.optim.Adam,
    "RMSprop": torch.optim.RMSprop,
    "SGD": lambda parameters, lr: torch.optim.SGD(parameters, lr, momentum=0.9),
}


@pytest.mark.parametrize(
    ("name", "loss", "shift"), [("Adam", "cross_entropy", 2), ("RMSprop", "mse", 3), ("SGD", "cross_entropy", 2)]
)
def test_steps_are_those_of_the_optimiser(name, loss, shift, monkeypatch):
    monkeypatch.setattr(sys.modules["gnlib.diagnosis.suggestions"], "WORTH", 1)
    net, x, y = of_a_chain(shift)
    found = report(net, x, y, loss=loss, optimizer=OPTIMIZERS[name](net.parameters(), lr=0.1))
    pace = {s.what: s.pace for s in found.suggestions}["centre the inputs"]
    assert pace.before < 1000  # so that the goal is a tenth of the first loss
    for inputs, steps in ((x, pace.before), (x - x.mean(0), pace.steps)):
        optimizer = OPTIMIZERS[name](net.parameters(), lr=0.1)
        stable = gnlib.GaussNewton(net, inputs, y, loss=loss, optimizer=optimizer).stable_rate()
        rate = stable.rule.limit / stable.largest / 2  # of the linear model, whatever the first step of the network
        course = gnlib.GaussNewton(net, inputs, y, loss, optimizer=optimizer).forecast(rate=rate, steps=1000).losses
        assert int((course <= pace.goal * (1 + 1e-6)).nonzero()[0]) == steps
    assert f"{pace.steps} steps of {name}, not {pace.before}, to a loss of" in page(found)
    assert (name == "SGD") or not any("learning rate" in s.what for s in found.suggestions)


def test_where_an_adaptive_matrix_takes_long_steps_are_of_descent(monkeypatch):
    net, x, y = of_a_chain()
    plain = report(net, x, y).suggestions
    monkeypatch.setattr(sys.modules["gnlib.diagnosis.suggestions"], "CHEAP_COLUMNS", 1e5)
    found = report(net, x, y, optimizer=torch.optim.Adam(net.parameters()))
    assert [(s.what, s.pace) for s in found.suggestions] == [(s.what, s.pace) for s in plain]
    assert found.suggestions and all(s.pace.optimizer == "gradient descent" for s in found.suggestions)


def test_the_state_of_an_optimiser_is_left_out():
    net, x, y = of_a_chain(10)
    fresh, used = (torch.optim.Adam(net.parameters(), lr=1e-9) for _ in range(2))
    net(x).square().sum().backward()
    used.step()
    found, again = (report(net, x, y, optimizer=optimizer).suggestions for optimizer in (fresh, used))
    assert found and [(s.what, s.pace) for s in found] == [(s.what, s.pace) for s in again]


def test_with_targets_a_duplicate_is_named_last():
    net, x = drawn()
    x = x + 3
    x[5] = x[2]
    found = report(net, x, torch.randn(12, 2, dtype=torch.float64)).suggestions
    assert len(found) > 1 and found[-1].what == "drop sample 5" and found[-1].pace is None


def test_a_change_that_is_refused_is_none():
    def root(self, x):
        if x.amin() < 0:
            raise ValueError("no negative inputs")
        return x.sqrt() * self.weight

    net = Whole(root, weight=nn.Parameter(torch.ones(2, dtype=torch.float64)))
    x = torch.tensor([[9.0, 4.0], [8.0, 1.0], [9.0, 2.0]], dtype=torch.float64)
    assert [s.what for s in report(net, x).suggestions] == []


def test_a_loss_that_only_rises_is_no_goal():
    """Raw features of several sizes: the softmax is sure and wrong, has hardly any curvature, and leaps."""
    net, _ = drawn(width=8)
    generator = torch.Generator().manual_seed(0)
    sizes = torch.tensor([13.0, 1e3, 2.0, 100.0], dtype=torch.float64)
    x = sizes * (3 + torch.randn(12, 4, generator=generator, dtype=torch.float64))
    net[1], y = nn.ReLU(), torch.arange(12) % 2
    course = gnlib.GaussNewton(net, x, y, "cross_entropy").forecast().losses
    assert course.argmin() == 0 and course.max() > 1e3 * course[0]
    found = report(net, x, y, loss="cross_entropy")
    assert found.suggestions and all(s.pace is None for s in found.suggestions)
    gains = [found.condition.value / s.after.value for s in found.suggestions]
    assert gains == sorted(gains, reverse=True) and gains[-1] >= WORTH

"""Real steps of copies: those that torch takes, with the user's optimiser, compared by the steps to a goal."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.optim import LBFGS, SGD, Adam, AdamW

from gnlib.advice.candidates import arguments_of
from gnlib.advice.runs import Batch, Run, Trainer, best_of, further_rates, loss_on
from tests.gnlib.diagnosis.networks import train
from tests.gnlib.networks import perceptron

GENERATOR = torch.Generator().manual_seed(0)
X, Y = torch.randn(20, 3, generator=GENERATOR), torch.randn(20, 1, generator=GENERATOR)


def trainer(optimizer, groups=None, **options):
    batches = [Batch(arguments_of(X[part]), Y[part]) for part in (slice(8), slice(8, None))]
    return Trainer(batches, loss_on("mse", None), optimizer, groups or {}, **options)


def by_hand(net, optimizer, steps):
    return train(net, X, Y, "mse", optimizer, steps)


def test_runs_are_compared_by_the_steps_to_the_goal_and_those_that_explode_come_last():
    fast, slow, never = (Run(1.0, (1.0, *[0.5] * n, 0.05, *[0.04] * (12 - n))) for n in (2, 5, 11))
    dead, short = Run(1.0, (1.0, math.inf)), Run(1.0, (1.0, 0.01))
    assert best_of([never, slow, dead, fast, short], 0.1) is fast and fast.steps_to(0.1) == 3
    assert not dead.is_sound and not short.is_sound and dead.steps_to(0.1) == math.inf


def test_a_loss_that_is_low_for_one_step_has_not_arrived():
    assert Run(1.0, (1.0, 0.05, 0.9, 0.5)).steps_to(0.1) == math.inf
    assert Run(1.0, (1.0, 0.05, 0.9, 0.08, 0.07)).steps_to(0.1) == 3 and Run(1.0, (0.05, 0.04)).steps_to(0.1) == 0


def test_a_first_step_goes_no_further_than_ten_times_the_length_of_the_weights():
    """Saturated outputs have a second derivative of next to nothing, and any largest stable rate."""
    net, of = perceptron(), trainer("sgd")
    rate, length = of.first_rate(net, 1e33), float(nn.utils.get_total_norm(net.parameters()).detach())
    first, then = (nn.utils.parameters_to_vector(each.parameters()).detach() for each in (net, stepped(net, rate)))
    assert float((then - first).norm()) == pytest.approx(10 * length, rel=1e-4) and of.first_rate(net, 0.1) == 0.05


def stepped(net, rate):
    net = copy.deepcopy(net)
    by_hand(net, SGD(net.parameters(), rate), 0)
    return net


def test_rates_go_on_beyond_an_end_where_the_best_is_and_then_beside_it():
    by_rate = {0.1: 5, 0.3: 3, 0.9: 4, 2.7: math.inf, 0.52: 4}
    made = {r: Run(r, (1.0, *[0.5] * n, *[0.05] * 12) if n < math.inf else (1.0, math.inf)) for r, n in by_rate.items()}
    found = {rates: further_rates([made[r] for r in rates], 0.1) for rates in ((0.1, 0.3), (0.3, 0.9), (2.7,))}
    assert [*found.values()] == [pytest.approx([each]) for each in (0.9, 0.1, 0.9)]
    assert further_rates([made[r] for r in (0.1, 0.3, 0.9)], 0.1) == pytest.approx([0.3 / 3**0.5, 0.3 * 3**0.5])
    nearer = further_rates([made[r] for r in (0.1, 0.3, 0.9, 0.52)], 0.1)
    assert nearer == pytest.approx([0.3 / 3**0.25, 0.3 * 3**0.25], rel=1e-2)
    made |= {rate: Run(rate, (1.0, math.inf)) for rate in nearer}
    assert further_rates([*made.values()], 0.1) == []


def test_where_no_rate_arrives_smaller_ones_are_tried_as_long_as_they_are_better():
    """Between rates that are too large for a network to learn the best is chance; smaller ones may learn."""
    dead = [Run(rate, (1.0, *[least] * 12)) for rate, least in ((0.3, 0.95), (0.9, 0.9), (2.7, 0.96))]
    assert further_rates(dead, 0.1) == []  # the least rate is worse: too slow
    assert further_rates([Run(0.3, (1.0, *[0.91] * 12)), Run(0.9, (1.0, *[0.92] * 12)), *dead[1:]], 0.1) == [0.3 / 3]


@pytest.mark.parametrize("least", [(1.0, 1e6, math.inf), (1.0, 1.1, *[0.96] * 12)])
def test_where_no_rate_arrives_and_the_loss_rises_at_the_least_one_a_smaller_one_is_tried(least):
    """A rate may kill a network, whose loss ends just below the first, and a smaller one be too large as well."""
    dead, larger = Run(0.9, (1.0, 50.0, *[0.95] * 12)), Run(2.7, (1.0, math.inf))
    assert further_rates([Run(0.3, least), dead, larger], 0.1) == [0.3 / 3]
    assert further_rates([Run(0.3, least), Run(0.9, (1.0, *[0.1] * 12)), larger], 0.1) != [0.3 / 3]  # one arrives


def test_a_run_that_has_fallen_behind_what_another_had_after_half_of_the_steps_ends_there():
    net, of = perceptron(), trainer("sgd")
    fast, later, slow = (of.run(net, rate, 0.0, math.inf, 45) for rate in (0.3, 0.25, 0.01))
    assert all(fast.losses[t] < later.losses[t] < fast.losses[t // 2] < slow.losses[t] for t in (20, 40))
    runs = [of.run(net, run.rate, 0.0, math.inf, 45, fast) for run in (slow, later)]
    assert [len(run.losses) - 1 for run in runs] == [20, 45]


def in_groups(net, rate):
    second = {"params": net[2].parameters(), "lr": rate / 5, "momentum": 0.5}
    return SGD([{"params": net[0].parameters(), "lr": rate}, second])


GROUPS = {"0.weight": 0, "0.bias": 0, "2.weight": 1, "2.bias": 1}


def test_a_run_takes_the_steps_of_the_optimiser_in_its_groups_for_at_least_ten():
    net, hand = perceptron(), perceptron()
    run = trainer(in_groups(net, 0.1), GROUPS).run(net, 0.2, 1e9, math.inf)
    assert run.losses == pytest.approx(by_hand(hand, in_groups(hand, 0.2), 10), rel=1e-5)
    torch.testing.assert_close(net(X), perceptron()(X))  # of a copy


def test_the_state_of_the_optimiser_and_its_rate_stay_the_user_s():
    net = perceptron()
    used = AdamW(net.parameters(), torch.tensor(0.01))
    (net(X) - Y).square().sum().backward()
    used.step()
    state, hand = copy.deepcopy(used.state_dict()), copy.deepcopy(net)
    run = trainer(used, dict.fromkeys(GROUPS, 0)).run(net, 0.03, 0.0, math.inf, 12)
    assert run.losses == pytest.approx(by_hand(hand, AdamW(hand.parameters(), 0.03), 12), rel=1e-4)  # with no state
    assert used.param_groups[0]["lr"] == 0.01 and str(used.state_dict()) == str(state)


def test_parameters_that_the_optimiser_does_not_move_stay():
    net, hand = perceptron(), perceptron()
    own, by = SGD(net[2].parameters(), 0.1), SGD(hand[2].parameters(), 0.1)
    run = trainer(own, {**GROUPS, "0.weight": -1, "0.bias": -1, "2.weight": 0, "2.bias": 0}).run(net, 0.1, 0, 99, 12)
    assert run.losses == pytest.approx(by_hand(hand, by, 12), rel=1e-5)


def test_an_optimiser_that_asks_for_the_loss_and_one_in_its_warm_up_are_followed():
    net = perceptron()
    found = trainer(LBFGS(net.parameters(), lr=0.1), dict.fromkeys(GROUPS, 0)).run(net, 0.1, 0.0, math.inf, 12)
    assert len(found.losses) == 13 and found.losses[-1] < 0.1 * found.losses[0]
    warm = Adam(net.parameters(), lr=0.01)
    torch.optim.lr_scheduler.LambdaLR(warm, lambda step: step / 100)
    assert warm.param_groups[0]["lr"] == 0
    assert trainer(warm).first_rate(net, 1.0) == pytest.approx(0.01)
    assert trainer(warm, dict.fromkeys(GROUPS, 0)).run(net, 0.01, 0.0, math.inf, 12).is_sound


@pytest.mark.parametrize("optimizer", [None, "momentum", "adam"])
def test_a_rate_is_halved_until_ten_steps_do_not_explode(optimizer):
    found, net = trainer(optimizer), perceptron()
    safe = found.safe_rate(net, 1e3, math.inf)
    assert math.log2(1e3 / safe) % 1 == 0 and found.run(net, safe, -1.0, math.inf, 10).is_sound
    assert not found.run(net, 2 * safe, -1.0, math.inf, 10).is_sound
    assert found.safe_rate(net, 1e30, math.inf) is None


def test_losses_on_held_out_data_are_of_evaluation_and_change_nothing():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
    other = torch.randn(6, 3, generator=GENERATOR)
    held = [Batch(arguments_of(other), torch.zeros(6, 1))]
    plain, found = (trainer("sgd", **options).run(net, 0.01, 0.0, math.inf, 12) for options in ({}, {"held_out": held}))
    assert found.losses == plain.losses and len(found.held_out) == 13
    z = (h := net[0](other)) - h.mean(0)
    expected = net[3](net[1].weight * z / (z.square().mean(0) + 1e-5).sqrt() + net[1].bias).square().sum() / 12
    assert found.held_out[0] == pytest.approx(expected.item(), rel=1e-4)


def test_classes_under_the_squared_error_are_vectors_with_a_one():
    f, y = torch.randn(4, 3, generator=GENERATOR), torch.tensor([0, 2, 1, 1])
    expected = (f - torch.eye(3)[y]).square().sum() / 8
    assert loss_on("mse", None)(f, y) == expected == loss_on("mse", None)(f, torch.eye(3)[y])

"""Trainings of the quick start, on problems of which the steps are known."""

import math

import pytest
import torch
from gnbook.quick_start.trainings import POWERS, Run, descend, epochs_of_adam, tuned
from torch import nn
from torch.nn.functional import cross_entropy

import gnlib

X, Y = torch.eye(3), torch.arange(3)


@pytest.fixture
def network():
    network = nn.Linear(3, 3, bias=False)
    nn.init.zeros_(network.weight)
    return network


def test_it_is_plain_gradient_descent(network):
    losses = descend(network, X, Y, 0.5, goal=0.5, most=100)
    ours = torch.optim.SGD(network.parameters(), 0.5)
    for expected in losses:
        loss = cross_entropy(network(X), Y)
        assert loss.item() == pytest.approx(expected)
        ours.zero_grad()
        loss.backward()
        ours.step()
    assert losses[-1] <= 0.5 < losses[-2]


def test_the_run_that_is_kept_is_the_soonest(network):
    stable = gnlib.GaussNewton(network, X, loss="cross_entropy").stable_rate()
    run = tuned(network, X, Y, 0.5, 400)
    steps = [len(descend(network, X, Y, stable.rate * 2.0**power, 0.5, 400)) - 1 for power in POWERS]
    assert run.steps == min(steps) == steps[POWERS.index(int(math.log2(run.share)))]
    assert run.kappa == pytest.approx(1)  # three images at right angles, three outputs that are alike
    with pytest.raises(ValueError, match="no training"):
        tuned(network, X.repeat(2, 1), torch.tensor([0, 1, 2, 1, 2, 0]), 0.5, 5)  # two classes for each image


def test_a_goal_is_reached_when_the_loss_is_below_it_for_the_first_time():
    run = Run([2.0, 1.0, 1.5, 0.5], 1.0, 1.0)
    assert (run.steps, run.steps_to(1.2), run.steps_to(0.9)) == (3, 1, 3)


def test_adam_reaches_its_goal_or_says_so(network):
    x, y = X.repeat(20, 1), Y.repeat(20)
    losses = epochs_of_adam(network, x, y, 0.9)
    assert losses[-1] <= 0.9 and all(loss > 0.9 for loss in losses[:-1])
    assert torch.equal(network.weight, torch.zeros(3, 3))  # a copy is trained
    with pytest.raises(ValueError, match="no training"):
        epochs_of_adam(network, x, y, 1e-9, most=2)

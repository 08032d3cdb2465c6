"""Gradient descent up to a loss."""

import torch
from gnbook.shared.descent import losses_until, steps_to
from gnbook.shared.training import half_squared_error
from torch import nn

from tests.oracles import normal

X, Y = normal(6, 4, seed=1).float(), normal(6, 2, seed=2).float()


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5, bias=False), nn.ReLU(), nn.Linear(5, 2, bias=False)).requires_grad_()


def test_it_is_the_descent_of_torchs_optimiser_and_leaves_the_network_alone():
    net = network()
    losses = losses_until(net, X, Y, 0.05, 0.0, 7)
    sgd, expected = torch.optim.SGD(net.parameters(), lr=0.05), []
    for _ in range(8):
        sgd.zero_grad()
        loss = half_squared_error(net(X), Y)
        loss.backward()
        expected.append(loss.item())
        sgd.step()
    torch.testing.assert_close(losses, expected)


def test_it_ends_at_the_goal_counts_the_steps_and_gives_a_rate_that_is_too_large_up():
    net = network()
    losses = losses_until(net, X, Y, 0.05, 0.0, 50)
    goal = losses[20]
    assert steps_to(net, X, Y, 0.05, goal, 50) == next(step for step, loss in enumerate(losses) if loss <= goal) > 0
    assert steps_to(net, X, Y, 0.05, goal, 5) is None
    assert len(losses_until(net, X, Y, 100.0, 0.01, 500)) < 500 and steps_to(net, X, Y, 100.0, 0.01, 500) is None

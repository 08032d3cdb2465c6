"""Training of one network: steps, goals, batches, and the rate that is the fastest."""

import math
from functools import partial

import pytest
import torch
from gnbook.shared.training import GradientDescent, fastest, fastest_of_adam, half_squared_error, train
from torch import nn
from torch.nn.functional import cross_entropy

from tests.oracles import normal

X, Y, LABELS = normal(10, 4, seed=1), normal(10, 3, seed=2), torch.arange(10) % 3


@pytest.fixture
def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).double()


def state(module):
    return [*module.state_dict().values()]


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, GradientDescent])
@pytest.mark.parametrize(("loss", "y"), [(half_squared_error, Y), (cross_entropy, LABELS)])
@pytest.mark.parametrize("batch_size", [None, 4])
def test_it_takes_the_steps_of_a_plain_loop_on_a_copy(network, optimizer, loss, y, batch_size):
    before = [tensor.clone() for tensor in state(network)]
    found = train(network, X, y, rate=0.05, most=7, loss=loss, optimizer=optimizer, batch_size=batch_size, seed=3)
    assert all(map(torch.equal, state(network), before))
    mover, order, losses = optimizer(network.parameters(), lr=0.05), torch.Generator().manual_seed(3), []
    for _ in range(2 if batch_size else 7):
        losses.append(loss(network(X), y).item())
        for some in torch.randperm(10, generator=order).split(batch_size) if batch_size else [slice(None)]:
            mover.zero_grad()
            loss(network(X[some]), y[some]).backward()
            mover.step()
    losses.append(loss(network(X), y).item())
    assert found.losses == losses and found.every == (3 if batch_size else 1)
    torch.testing.assert_close(state(found.module), state(network), rtol=0, atol=0)


def test_it_ends_at_its_goal_and_counts_the_steps(network):
    whole = train(network, X, Y, rate=0.05, most=50)
    goal = whole.losses[20]
    found = train(network, X, Y, rate=0.05, most=50, until=goal)
    assert found.losses == whole.losses[:21] and found.steps == whole.steps_to(goal) == 20
    assert found.steps_to(whole.losses[19]) == 19 and found.steps_to(goal / 2) == math.inf
    assert train(network, X, Y, rate=0.05, most=5, until=goal).steps == math.inf
    epochs = train(network, X, LABELS, rate=0.1, most=90, until=0.9, loss=cross_entropy, batch_size=4)
    assert epochs.steps == 3 * (len(epochs.losses) - 1) > 0


@pytest.mark.parametrize("batch_size", [None, 4])
def test_the_fastest_rate_is_that_of_all_trainings(network, batch_size):
    run = partial(train, network, X, Y, until=1.0, batch_size=batch_size)
    rates = (0.05, 0.2, 0.1, 0.2, 50.0)
    steps = [run(rate=rate, most=300).steps for rate in rates]
    rate, best = fastest(run, rates, 300)
    assert best.steps == min(steps) < math.inf and rate == rates[steps.index(min(steps))]
    assert best.losses == run(rate=rate, most=300).losses
    assert fastest(run, rates, min(steps) - 1) is None
    rate, best = fastest(partial(train, network, X, Y, until=1e9), rates, 300)
    assert (rate, best.steps) == (0.05, 0)


def test_adam_has_the_best_of_three_rates(network):
    x, labels = X.repeat(20, 1), LABELS.repeat(20)
    options = {"loss": cross_entropy, "optimizer": torch.optim.Adam, "batch_size": 32, "seed": 5, "until": 0.9}
    steps = [train(network, x, labels, rate=rate, most=700, **options).steps for rate in (1e-2, 3e-3, 1e-3)]
    assert fastest_of_adam(network, x, labels, until=0.9, most=700, seed=5).steps == min(steps) < math.inf
    assert fastest_of_adam(network, x, labels, until=1e-9, most=14) is None

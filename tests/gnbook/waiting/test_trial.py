"""How the loss of a network is spread over the eigenvalues, and what the law of waiting makes of it."""

import numpy as np
import pytest
import torch
from gnbook.waiting.trial import goal_of, steps_to
from torch import nn

from gnlib.diagnosis.waits import spread_of
from gnlib.losses import loss_of
from gnlib.problem import Problem

N, K, D = 6, 3, 4
X = torch.randn(N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = {
    "mse": torch.randn(N, K, dtype=torch.float64, generator=torch.Generator().manual_seed(1)),
    "cross_entropy": torch.tensor([0, 1, 2, 0, 1, 1]),
}


def linear(scale=1.0):
    torch.manual_seed(2)
    network = nn.Linear(D, K, bias=False).double()
    network.weight.data *= scale
    return network


def found(network, loss):
    values, shares, above = spread_of(Problem(network, X, Y[loss], loss))
    return values.numpy(), shares.numpy(), above


def quadratic_path(network, loss, rate, steps):
    """The quadratic model of a loss along gradient descent of a linear network on it, step by step."""
    start, weight = network(X).detach(), network.weight.detach().clone()
    of = loss_of(loss, Y[loss], start)
    gradient, curvature = of.gradient(start), of.root(start) @ of.root(start).mT
    path = []
    for _ in range(steps + 1):
        moved = X @ weight.T - start
        pulled = gradient + (curvature @ moved[:, :, None])[:, :, 0]
        path.append(of.value(start) + ((gradient + pulled) * moved).sum().item() / (2 * N))
        weight = weight - rate * pulled.T @ X / N
    return np.array(path)


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_the_shares_give_the_path_of_the_quadratic_model(loss):
    network, (eigenvalues, shares, above) = linear(), found(linear(), loss)
    rate = 0.9 / eigenvalues[-1]
    path = quadratic_path(network, loss, rate, 30)
    left = [shares @ (1 - rate * eigenvalues) ** (2 * t) for t in range(31)]
    assert above * (np.array(left) - 1) == pytest.approx(path - path[0], abs=1e-12)
    assert [goal_of(above, path[0], value) for value in path] == pytest.approx(left, abs=1e-12)


@pytest.mark.parametrize("goal", [0.5, 0.1, 1e-4])
def test_the_steps_of_the_model_are_those_of_a_loop(goal):
    rng = np.random.default_rng(0)
    eigenvalues, given = np.sort(rng.uniform(0.05, 1, 20)), rng.dirichlet(np.ones(20))
    shares, steps = given, 0
    while shares.sum() > goal:
        shares, steps = shares * (1 - eigenvalues) ** 2, steps + 1
    assert steps_to(eigenvalues, given, 1.0, goal) == steps > 0

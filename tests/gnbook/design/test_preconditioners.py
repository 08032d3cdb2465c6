"""Preconditioned kernels against matrices that are formed whole."""

from functools import partial

import numpy as np
import pytest
import torch
from gnbook.design.layers import layers_of
from gnbook.design.preconditioners import (
    WAYS,
    descend,
    diagonal,
    divided_kernel,
    divided_trainings,
    fastest,
    features,
    plain,
    quality,
)
from gnbook.shared.tuning import first_below

from tests.gnbook.design.helpers import chain, condition, jacobians, kernel
from tests.strategies import exact, gaussian

X = gaussian(1, 5, 4)
DAMPED = partial(features, damping=1e-3)


@pytest.fixture
def network():
    return chain([4, 6, 3, 2], bias=True, seed=2)


def test_the_plain_kernel(network):
    torch.testing.assert_close(
        divided_kernel(network, X, plain(network, X)), kernel(network, X), rtol=1e-10, atol=1e-12
    )


def test_the_diagonal_is_that_of_the_whole_matrix(network):
    jacobian = torch.cat([*jacobians(network, X).values()], 1)
    roots = (jacobian.mT @ jacobian / 5).diagonal().sqrt()
    used = roots > 0
    expected = (jacobian[:, used] / roots[used]) @ jacobian[:, used].mT / 5
    found = divided_kernel(network, X, diagonal(network, X))
    assert (found - expected).norm() < 0.02 * expected.norm()  # there is a floor


def test_features_divide_each_layer_by_their_second_moment(network):
    inputs, expected, jacobian = X, 0, jacobians(network, X)
    for index in (0, 2, 4):
        augmented = torch.cat([inputs, torch.ones(5, 1).double()], 1)
        moment = augmented.mT @ augmented / 5
        moment = moment + 0.3 * moment.trace() / len(moment) * torch.eye(len(moment))
        whole = torch.kron(torch.eye(network[index].out_features).double(), torch.linalg.inv(moment).contiguous())
        weights, bias = (jacobian[f"{index}.{part}"] for part in ("weight", "bias"))
        joined = torch.cat([weights.unflatten(1, (len(bias[0]), -1)), bias[:, :, None]], 2).flatten(1)
        expected = expected + joined @ whole @ joined.mT / 5
        inputs = network[index](inputs).relu().detach()
    torch.testing.assert_close(
        divided_kernel(network, X, features(network, X, damping=0.3)), expected, rtol=1e-8, atol=1e-10
    )
    assert not any(module._forward_pre_hooks for module in network.modules())


def test_quality_is_a_condition_number_and_a_time(network):
    matrix, residual = kernel(chain([4, 30, 2]), X[:3]), gaussian(4, 3, 2)
    kappa, time = quality(matrix, residual, 0.1)
    assert kappa == pytest.approx(condition(matrix), rel=1e-9)
    flow = torch.linalg.matrix_exp(-matrix / torch.linalg.eigvalsh(matrix)[-1] * time)
    assert ((flow @ residual.flatten()).square().sum() / 6).item() == pytest.approx(0.1)
    assert quality(torch.diag(exact([1.0, 1.0])), exact([[1.0], [1.0]]), 0.1)[0] == 1


def test_the_diagonal_is_that_of_the_parts_under_gains(network):
    whole = divided_kernel(network, X, diagonal(network, X))
    torch.testing.assert_close(whole, layers_of(network, X, preconditioned=True).parts.sum(0), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("way", [plain, diagonal, DAMPED])
def test_a_small_step_moves_the_outputs_by_the_divided_kernel(network, way):
    y, divide, rate = gaussian(5, 5, 2), way(network, X), 1e-6
    residual = (network(X) - y).detach()
    moved = rate * divided_kernel(network, X, divide) @ residual.flatten()
    before, after = descend(network, X, y, divide, rate=rate, goal=0.0, horizon=1)
    assert (before - after) / rate == pytest.approx((residual.flatten() @ moved / (5 * rate)).item(), rel=1e-3)


def test_plain_descent_is_that_of_torch(network):
    y, before = gaussian(5, 5, 2), [p.detach().clone() for p in network.parameters()]
    found = descend(network, X, y, plain(network, X), rate=0.05, goal=0.0, horizon=3)
    assert all(torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))
    optimizer, expected = torch.optim.SGD(network.parameters(), 0.05), []
    for _ in range(4):
        loss = (network(X) - y).square().sum() / 10
        expected.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert found == pytest.approx(expected, rel=1e-12)


def test_descent_ends_at_its_goal_or_where_it_is_hopeless(network):
    y = gaussian(5, 5, 2)
    first = descend(network, X, y, plain(network, X), rate=0.05, goal=0.0, horizon=0)[0]
    *others, last = descend(network, X, y, plain(network, X), rate=0.05, goal=0.9 * first, horizon=500)
    assert last < 0.9 * first <= min(others)
    diverged = descend(network, X, y, plain(network, X), rate=1e3, goal=0.0, horizon=500)
    assert len(diverged) < 100 and not diverged[-1] < 1e6 * first


def test_the_fastest_rate_is_that_of_all_of_them(network):
    y, divide = gaussian(5, 5, 2), plain(network, X)
    goal, rates = 0.7 * (network(X) - y).square().sum().item() / 10, [2.0**power for power in range(3, -12, -1)]
    how = {"goal": goal, "horizon": 200}
    steps = {rate: first_below(descend(network, X, y, divide, rate=rate, **how), goal) for rate in rates}
    fewest = min(steps.values())
    assert 1 < fewest < 200 and steps[rates[0]] == steps[rates[-1]] == np.inf
    for order in (rates, rates[::-1]):
        rate, losses = fastest(network, X, y, divide, rates=order, **how)
        assert len(losses) - 1 == steps[rate] == fewest and losses[-1] < goal


def test_where_no_rate_arrives(network):
    y = gaussian(5, 5, 2)
    rate, losses = fastest(network, X, y, plain(network, X), rates=[1e-3, 1e3], goal=0.0, horizon=5)
    assert np.isnan(rate) and losses == []


@pytest.mark.bad_input
def test_a_network_with_other_parameters():
    with pytest.raises(ValueError, match="The network has parameters that are not weights and biases of linear layers"):
        features(chain([4, 6, 2]), X, damping=0.1)


def test_each_way_has_the_training_of_its_own_division(network):
    y = gaussian(2, 5, 2)
    goal = 0.3 * (network(X) - y).square().sum().item() / 10
    found = {one.name: one for one in divided_trainings(network, X, y, goal=goal, horizon=200)}
    assert found.keys() == WAYS.keys()
    for name, one in found.items():
        divide = WAYS[name](network, X)
        matrix = divided_kernel(network, X, divide)
        assert one.kappa == pytest.approx(condition(matrix), rel=1e-6)
        rate = one.rate / torch.linalg.eigvalsh(matrix)[-1].item()
        losses = descend(network, X, y, divide, rate=rate, goal=goal, horizon=200)
        assert one.losses == pytest.approx(losses) and one.steps == len(losses) - 1 and losses[-1] < goal

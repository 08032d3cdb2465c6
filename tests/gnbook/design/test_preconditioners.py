"""Preconditioned kernels against matrices that are formed whole."""

from functools import partial

import numpy as np
import pytest
import torch
from gnbook.design.preconditioners import (
    PRECONDITIONERS,
    diagonal,
    divided_kernel,
    divided_training,
    divided_trainings,
    features,
    plain,
    quality,
)

from tests.gnbook.design.helpers import chain, condition, jacobians, kernel
from tests.strategies import exact, gaussian

X = gaussian(1, 5, 4)
DAMPED = partial(features, damping=1e-3)


@pytest.fixture
def network():
    return chain([4, 6, 3, 2], bias=True, seed=2)


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


@pytest.mark.parametrize("way", [plain, diagonal, DAMPED])
def test_a_small_step_moves_the_outputs_by_the_divided_kernel(network, way):
    y, divide, rate = gaussian(5, 5, 2), way(network, X), 1e-6
    residual = (network(X) - y).detach()
    moved = rate * divided_kernel(network, X, divide) @ residual.flatten()
    before, after = divided_training(network, X, y, divide, rate=rate, until=0.0, most=1).losses
    assert (before - after) / rate == pytest.approx((residual.flatten() @ moved / (5 * rate)).item(), rel=1e-3)


def test_each_way_has_the_training_of_its_own_division(network):
    y = gaussian(2, 5, 2)
    goal = 0.3 * (network(X) - y).square().sum().item() / 10
    found = {one.name: one for one in divided_trainings(network, X, y, goal=goal, horizon=200)}
    assert found.keys() == PRECONDITIONERS.keys()
    for name, one in found.items():
        divide = PRECONDITIONERS[name](network, X)
        matrix = divided_kernel(network, X, divide)
        assert one.kappa == pytest.approx(condition(matrix), rel=1e-6)
        rate = one.rate / torch.linalg.eigvalsh(matrix)[-1].item()
        again = divided_training(network, X, y, divide, rate=rate, until=goal, most=200)
        assert one.losses == pytest.approx(again.losses) and one.steps == again.steps
    none = [*divided_trainings(network, X, y, goal=1e-9 * goal, horizon=2)]
    assert all(np.isnan(one.rate) and one.losses == [] and one.steps is None for one in none)

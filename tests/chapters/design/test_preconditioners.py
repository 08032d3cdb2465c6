"""Preconditioned kernels against matrices that are formed whole."""

import pytest
import torch

from gnlib.chapters.design.preconditioners import DAMPING, diagonal, features, plain, quality
from tests.chapters.design.helpers import chain, condition, jacobians, kernel
from tests.strategies import exact, gaussian

X = gaussian(1, 5, 4)


@pytest.fixture
def network():
    return chain([4, 6, 3, 2], bias=True, seed=2)


def test_the_plain_kernel(network):
    torch.testing.assert_close(plain(network, X), kernel(network, X), rtol=1e-10, atol=1e-12)


def test_the_diagonal_is_that_of_the_whole_matrix(network):
    jacobian = torch.cat([*jacobians(network, X).values()], 1)
    roots = (jacobian.mT @ jacobian / 5).diagonal().sqrt()
    used = roots > 0
    expected = (jacobian[:, used] / roots[used]) @ jacobian[:, used].mT / 5
    found = diagonal(network, X)
    assert (found - expected).norm() < 0.02 * expected.norm()  # there is a floor


def test_features_divide_each_layer_by_their_second_moment(network):
    inputs, expected, jacobian = X, 0, jacobians(network, X)
    for index in (0, 2, 4):
        augmented = torch.cat([inputs, torch.ones(5, 1).double()], 1)
        moment = augmented.mT @ augmented / 5
        moment = moment + DAMPING * moment.trace() / len(moment) * torch.eye(len(moment))
        whole = torch.kron(torch.eye(network[index].out_features).double(), torch.linalg.inv(moment).contiguous())
        weights, bias = (jacobian[f"{index}.{part}"] for part in ("weight", "bias"))
        joined = torch.cat([weights.unflatten(1, (len(bias[0]), -1)), bias[:, :, None]], 2).flatten(1)
        expected = expected + joined @ whole @ joined.mT / 5
        inputs = network[index](inputs).relu().detach()
    torch.testing.assert_close(features(network, X), expected, rtol=1e-8, atol=1e-10)
    assert not any(module._forward_pre_hooks for module in network.modules())


def test_quality_is_a_condition_number_and_a_time(network):
    matrix, residual = kernel(chain([4, 30, 2]), X[:3]), gaussian(4, 3, 2)
    kappa, time = quality(matrix, residual, 0.1)
    assert kappa == pytest.approx(condition(matrix), rel=1e-9)
    flow = torch.linalg.matrix_exp(-matrix / torch.linalg.eigvalsh(matrix)[-1] * time)
    assert ((flow @ residual.flatten()).square().sum() / 6).item() == pytest.approx(0.1)
    assert quality(torch.diag(exact([1.0, 1.0])), exact([[1.0], [1.0]]), 0.1)[0] == 1


@pytest.mark.bad_input
def test_a_network_with_other_parameters():
    with pytest.raises(ValueError, match="The network has parameters that are not weights and biases of linear layers"):
        features(chain([4, 6, 2]), X)

"""Linear convolutional networks with shared filters, networks that imitate others, and the public code."""

import pytest
import torch
from gnbook.convolution.bounds import sharp_convolution
from gnbook.convolution.descent import Convolutions, linear_steps, relu_gauss_newton
from gnbook.convolution.gauss_newton import convolution_gauss_newton, path_moment
from gnbook.convolution.measured import limit, linear_condition, two_layer_eigenvalues
from gnbook.convolution.networks import convolution_weights, toeplitz
from gnbook.shared.training import train

import gnlib
from tests.oracles import identity, normal, spectrum
from tests.strategies import gaussian, kron


def drawn(seed, channels=1):
    return [gaussian(seed, 3, channels, 2, 2), gaussian(seed + 1, 1, 3, 2, 2)]


def test_with_kernels_of_size_one_the_sharper_bound_is_that_of_fully_connected_layers():
    weights, x = [normal(6, 3, seed=0), normal(7, 6, seed=1), normal(2, 7, seed=2)], normal(20, 3, seed=3)
    expected = gnlib.bounds.sharp_linear(weights, gnlib.SecondMoment.from_data(x))
    assert sharp_convolution([w[..., None] for w in weights], x[..., None]) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("stride", [1, [2, 1]])
def test_the_condition_number_and_its_limit_are_those_of_one_network(stride):
    x = gaussian(0, 30, 2, 7, 7)
    for seed in (1, 3):  # two networks of these sizes: the second finds the patches of the first
        problem = drawn(seed, 2), x, stride
        for found, matrix in ((linear_condition, convolution_gauss_newton), (limit, path_moment)):
            assert found(*problem) == pytest.approx(float(gnlib.condition_number(matrix(*problem))), rel=1e-9)


def eigenvalues(network, x):
    return torch.linalg.eigvalsh(gnlib.GaussNewton(network, x, output=lambda outputs: outputs.flatten(1)).gram())


@pytest.mark.parametrize("stride", [1, 2])
def test_the_matrix_with_a_relu_is_that_of_the_jacobian(stride):
    x = gaussian(0, 4, 1, 9, 9)
    found = torch.linalg.eigvalsh(relu_gauss_newton(drawn(1), x, stride))
    expected = eigenvalues(Convolutions(drawn(1), (stride, 1), relu=True), x)
    assert torch.allclose(found, expected[-len(found) :], atol=1e-10)


@pytest.mark.parametrize("stride", [1, 2])
def test_steps_by_patches_are_those_on_all_images(stride):
    x, shares = gaussian(0, 6, 1, 6, 6), (0.5, 0.1)
    network, target = (Convolutions(drawn(seed), (stride, 1)) for seed in (1, 5))
    how = {"rate": 1 / eigenvalues(network, x)[-1].item(), "most": 10**4, "until": 1e-3}
    found = train(network, x, target(x).detach(), **how)
    expected = [found.steps_to(share * found.losses[0]) for share in shares]
    assert linear_steps(drawn(1), drawn(5), x, [stride, 1], shares) == expected


@pytest.mark.parametrize("seed", range(3))
def test_the_blocks_have_the_eigenvalues_of_the_kronecker_products_that_the_public_code_forms(seed):
    x, generator = normal(40, 12, seed=seed), torch.Generator().manual_seed(seed)
    moment, filters = x.T @ x / len(x), convolution_weights([1, 2, 2], [3, 3], generator=generator)
    inner, outer = toeplitz(filters[0], 12), toeplitz(filters[1], 10)
    whole = kron(outer @ outer.T, moment) + kron(identity(len(outer)), moment @ inner.T @ inner @ moment / 4)
    assert torch.allclose(two_layer_eigenvalues(filters, moment, moment / 2), spectrum(whole), rtol=1e-12, atol=1e-12)

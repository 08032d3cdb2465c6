"""Linear convolutional networks with shared filters, networks that imitate others, and the public code."""

import pytest
import torch
from gnbook.convolution.bounds import convolution_bound, sharp_convolution
from gnbook.convolution.descent import Convolutions, linear_steps, relu_gauss_newton, relu_loss_left
from gnbook.convolution.gauss_newton import convolution_gauss_newton, path_moment
from gnbook.convolution.measured import limit, linear_condition
from gnbook.convolution.networks import convolution_weights, toeplitz
from gnbook.convolution.published import two_layer_eigenvalues
from gnbook.shared.training import train

import gnlib
from gnlib.linear.bounds import zhao_lemma_2
from gnlib.linear.gauss_newton import linear_gauss_newton
from tests.oracles import assert_same_nonzero_spectrum, normal, spectrum
from tests.strategies import gaussian


def test_kernels_of_size_one_are_fully_connected_layers():
    weights = [normal(6, 3, seed=0), normal(7, 6, seed=1), normal(2, 7, seed=2)]
    x = normal(20, 3, seed=3)
    filters, samples = [w[..., None] for w in weights], x[..., None]
    moment = gnlib.SecondMoment.from_data(x)
    expected = spectrum(linear_gauss_newton(weights, moment).dense())
    assert_same_nonzero_spectrum(spectrum(convolution_gauss_newton(filters, samples)), expected, 1e-12)
    assert convolution_bound(filters, samples) == pytest.approx(zhao_lemma_2(weights, moment).first, rel=1e-9)
    assert sharp_convolution(filters, samples) == pytest.approx(gnlib.bounds.sharp_linear(weights, moment), rel=1e-9)


@pytest.mark.parametrize("stride", [1, [2, 1]])
def test_the_condition_number_and_its_limit_are_those_of_one_network(stride):
    x = gaussian(0, 30, 2, 7, 7)
    for seed in (1, 3):  # two networks of these sizes: the second finds the patches of the first
        weights = [gaussian(seed, 3, 2, 2, 2), gaussian(seed + 1, 1, 3, 2, 2)]
        matrix = convolution_gauss_newton(weights, x, stride)
        found = linear_condition(weights, x, stride)
        assert found == pytest.approx(float(gnlib.condition_number(matrix)), rel=1e-9)
        paths = path_moment(weights, x, stride)
        assert limit(weights, x, stride) == pytest.approx(float(gnlib.condition_number(paths)), rel=1e-9)


def eigenvalues(network, x):
    return torch.linalg.eigvalsh(gnlib.GaussNewton(network, x, output=lambda outputs: outputs.flatten(1)).gram())


@pytest.mark.parametrize("stride", [1, 2])
def test_the_matrix_with_a_relu_is_that_of_the_jacobian(stride):
    x, weights = gaussian(0, 4, 1, 9, 9), (gaussian(1, 3, 1, 2, 2), gaussian(2, 1, 3, 2, 2))
    network = Convolutions(weights, (stride, 1), relu=True)
    found = torch.linalg.eigvalsh(relu_gauss_newton(weights, x, stride))
    assert torch.allclose(found, eigenvalues(network, x)[-len(found) :], atol=1e-10)


@pytest.mark.parametrize("stride", [1, 2])
def test_steps_by_patches_are_those_on_all_images(stride):
    x = gaussian(0, 6, 1, 6, 6)
    weights, other = ([gaussian(seed, 3, 1, 2, 2), gaussian(seed + 1, 1, 3, 2, 2)] for seed in (1, 5))
    shares = (0.5, 0.1)
    by_patches = linear_steps(weights, other, x, [stride, 1], shares)

    network, target = (Convolutions(w, (stride, 1)) for w in (weights, other))
    how = {"rate": 1 / eigenvalues(network, x)[-1].item(), "most": 10**4, "until": 1e-3}
    found = train(network, x, target(x).detach(), **how)
    assert by_patches == [found.steps_to(share * found.losses[0]) for share in shares]


def test_the_loss_that_is_left_with_a_relu():
    x = gaussian(0, 4, 1, 6, 6)
    weights, other = ([gaussian(seed, 3, 1, 2, 2), gaussian(seed + 1, 1, 3, 2, 2)] for seed in (1, 5))
    rate = 1 / torch.linalg.eigvalsh(relu_gauss_newton(weights, x))[-1].item()
    start, *later = relu_loss_left(weights, other, x, rate, [0, 5, 20])
    assert start == 1 and 1 > later[0] > later[1] > 0


PIXELS, TAPS, FILTERS = 12, 3, 2


def drawn(seed):
    return convolution_weights([1, FILTERS, FILTERS], [TAPS] * 2, generator=torch.Generator().manual_seed(seed))


def written_out(filters, second_moment, factor):
    """The Kronecker products as the public code forms them."""
    inner, outer = toeplitz(filters[0], PIXELS), toeplitz(filters[1], PIXELS - TAPS + 1)
    above = torch.kron(outer @ outer.T, second_moment)
    return above + torch.kron(torch.eye(len(outer), dtype=torch.float64), factor @ inner.T @ inner @ factor)


@pytest.mark.parametrize("seed", range(3))
def test_the_blocks_have_the_eigenvalues_of_the_whole(seed):
    x = normal(40, PIXELS, seed=seed)
    moment = x.T @ x / len(x)
    whole = torch.linalg.eigvalsh(written_out(drawn(seed), moment, moment / 2)).flip(0)
    assert torch.allclose(two_layer_eigenvalues(drawn(seed), moment, moment / 2), whole, rtol=1e-12, atol=1e-12)

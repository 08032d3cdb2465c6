"""Zhao 2024, end of section 4 and appendix B: convolutions as Toeplitz matrices, and what is carried over to them."""

import itertools

import pytest
import torch
from gnbook.convolution.networks import toeplitz
from hypothesis import given
from torch.nn import functional

from gnlib.linear.bounds import zhao_lemma_2
from gnlib.linear.gauss_newton import linear_gauss_newton
from tests.gnbook.convolution.helpers import condition, networks, outputs, shared_jacobian, true_values
from tests.oracles import identity
from tests.strategies import a_hundred, exact, jacobian


def toeplitz_chain(filters, x, strides, paddings):
    """Return the Toeplitz matrices of the layers, and for each the matrix of zeros and ones that makes it of taps."""
    chain, sharing = [], []
    for i, w in enumerate(filters):
        how = outputs(filters[:i], x, strides, paddings).shape[2:], strides[i], paddings[i]
        chain.append(toeplitz(w, *how))
        units = identity(w.numel()).reshape(-1, *w.shape)
        sharing.append(torch.stack([toeplitz(unit, *how).flatten() for unit in units], 1))
    return chain, sharing


@pytest.mark.claim("Appendix B with Eq. 5", "Appendix B with Lemma 2", verdict="fails")
@pytest.mark.claim("Figure 8, filters as depth and kernels as width", verdict="fails")
@pytest.mark.claim("Eq. 15", verdict="holds if")
def test_the_smallest_counterexamples_have_one_filter_or_two():
    filters = [exact([[[1]]]), exact([[[1, 0]]])]  # one filter of one tap, and one of two
    white = 2**0.5 * identity(2)[:, None]  # two samples, whose second moment is the identity
    chain, _ = toeplitz_chain(filters, white, [1, 1], [0, 0])
    assert true_values(filters, white).tolist() == pytest.approx([2, 1], rel=1e-12)  # and not by either formula
    assert torch.equal(linear_gauss_newton(chain, identity(2)).dense(), 2 * identity(2))
    assert zhao_lemma_2(chain, identity(2)).second == pytest.approx(1, rel=1e-12)

    x = 3**0.5 * identity(3)[:, None]
    one = [exact([[[2, 1]]]), exact([[[1, 2]]])]
    two = [exact([[[2, 1]], [[1, -2]]]), exact([[[1, 2], [2, -1]]])]  # a second filter lowers the condition number
    assert condition(one, x) == pytest.approx((5 + 17**0.5) ** 2 / 8, rel=1e-12)
    assert condition(two, x) == pytest.approx(2, rel=1e-12)
    assert len(true_values(one, x)) == len(true_values(two, x)) == 3

    first, second, x = exact([[[1, 2]]]), exact([[[3, 4]]]), exact([[[1, 0, 0]]])  # the operation is not associative
    assert functional.conv1d(functional.conv1d(x, first), second).tolist() == [[[3]]]
    assert functional.conv1d(x, functional.conv1d(first, second)).tolist() == [[[11, 0, 0]]]


@pytest.mark.claim("Sharing is a compression", verdict="holds")
@a_hundred
@given(networks((1, 2), (1, 1)))
def test_sharing_multiplies_the_jacobian_by_zeros_and_ones(problem):
    chain, sharing = toeplitz_chain(*problem)
    e, unshared, shared = torch.block_diag(*sharing), jacobian(chain, problem[1].flatten(1)), shared_jacobian(*problem)
    assert (unshared @ e - shared).abs().max() <= 1e-12 * (1 + shared.abs().max())
    counts = e.mT @ e
    assert torch.equal(counts, counts.diag().diag())
    if shared.any():
        top, whole = (torch.linalg.svdvals(j)[0] ** 2 for j in (shared, unshared))
        assert top <= counts.max() * whole * (1 + 1e-9)


@pytest.mark.claim("Appendix B, convolution", "Appendix B, Toeplitz matrix of filters", verdict="holds")
@pytest.mark.claim("Appendix B, Toeplitz matrix of a layer", verdict="holds")
@pytest.mark.claim("Eq. 15", verdict="holds if")
@given(networks((2, 3), (1, 1), strides=1, padding=0, inputs=1))
def test_the_toeplitz_matrices_of_filters_and_the_effective_kernel_of_convolutions_from_the_right(problem):
    filters, x, _, _ = problem  # of one dimension, as the paper has it
    h = identity(1)[..., None]  # (out, in, taps), a product of polynomials
    for i, w in enumerate(filters):
        z, (out, fan_in, k) = outputs(filters[:i], x)[0], w.shape
        places = z.shape[1] - k + 1
        blocks = torch.zeros(out, places, fan_in, z.shape[1]).double()
        for row, tap in itertools.product(range(places), range(k)):
            blocks[:, row, :, row + tap] = w[:, :, tap]
        matrix, convolution = toeplitz(w, z.shape[1]), functional.conv1d(z[None], w)[0]
        assert torch.equal(matrix, blocks.reshape(out * places, z.numel()))
        pieces = torch.stack([torch.stack([(taps * z[:, j : j + k]).sum() for j in range(places)]) for taps in w])
        scale = 1e-13 * (1 + z.abs().max().item() * w.abs().sum().item())
        torch.testing.assert_close(pieces, convolution, rtol=1e-12, atol=scale)
        torch.testing.assert_close(matrix @ z.flatten(), convolution.flatten(), rtol=1e-12, atol=scale)
        h = functional.conv_transpose1d(h.transpose(0, 1), w.transpose(0, 1)).transpose(0, 1)
    scale = 1 + x.abs().max() * torch.stack([w.abs().sum() for w in filters]).prod()
    assert (functional.conv1d(x, h) - outputs(filters, x)).abs().max() <= 1e-13 * scale


@pytest.mark.claim("Eq. 16", verdict="holds")
@given(networks())
def test_a_network_is_the_product_of_its_toeplitz_matrices(problem):
    filters, x, _, _ = problem
    z, scale = x.flatten(1), 1 + x.abs().max()
    for matrix, w in zip(toeplitz_chain(*problem)[0], filters, strict=True):
        z, scale = z @ matrix.mT, scale * (1 + w.abs().sum())
    assert (z - outputs(*problem).flatten(1)).abs().max() <= 1e-13 * scale

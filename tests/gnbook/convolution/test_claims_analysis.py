"""Zhao 2024, end of section 4 and appendix B: convolutions as Toeplitz matrices, and what is carried over to them."""

import itertools

import pytest
import torch
from gnbook.convolution.networks import toeplitz
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from gnlib.linear.bounds import zhao_lemma_2
from gnlib.linear.gauss_newton import linear_gauss_newton
from tests.gnbook.convolution.helpers import (
    condition,
    networks,
    one_dimensional,
    outputs,
    shared_jacobian,
    some_filters,
    true_values,
)
from tests.strategies import a_hundred, exact, gaussian, instances, jacobian, seeds


def toeplitz_chain(filters, x):
    size, chain = x.shape[2], []
    for w in filters:
        chain.append(toeplitz(w, size))
        size = size - w.shape[2] + 1
    return chain


ONE_AND_TWO = [exact([[[1]]]), exact([[[1, 0]]])]  # one filter of one tap, and one of two
WHITE = 2**0.5 * torch.eye(2).double()[:, None]  # two samples, whose second moment is the identity


@pytest.mark.claim("Appendix B with Eq. 5", verdict="fails")
def test_eq_5_with_toeplitz_matrices_has_other_eigenvalues():
    assert true_values(ONE_AND_TWO, WHITE).tolist() == pytest.approx([2, 1], rel=1e-12)
    formula = linear_gauss_newton(toeplitz_chain(ONE_AND_TWO, WHITE), torch.eye(2).double()).dense()
    assert torch.equal(formula, 2 * torch.eye(2).double())


@pytest.mark.claim("Appendix B with Lemma 2", verdict="fails")
def test_lemma_2_with_toeplitz_matrices_is_below_the_condition_number():
    assert zhao_lemma_2(toeplitz_chain(ONE_AND_TWO, WHITE), torch.eye(2).double()).second == pytest.approx(1, rel=1e-12)
    values = true_values(ONE_AND_TWO, WHITE)
    assert (values[0] / values[-1]).item() == pytest.approx(2, rel=1e-12)


@pytest.mark.claim("Figure 8, filters as depth and kernels as width", verdict="fails")
def test_a_second_filter_lowers_the_condition_number():
    x = 3**0.5 * torch.eye(3).double()[:, None]
    one = [exact([[[2, 1]]]), exact([[[1, 2]]])]
    two = [exact([[[2, 1]], [[1, -2]]]), exact([[[1, 2], [2, -1]]])]
    assert condition(one, x) == pytest.approx((5 + 17**0.5) ** 2 / 8, rel=1e-12)
    assert condition(two, x) == pytest.approx(2, rel=1e-12)
    assert len(true_values(one, x)) == len(true_values(two, x)) == 3


def sharing(filters, x, strides, paddings):
    """Return the matrix E of zeros and ones that puts each tap at all its places in the Toeplitz matrices."""
    blocks = []
    for i, w in enumerate(filters):
        units = torch.eye(w.numel()).double().reshape(-1, *w.shape)
        size = outputs(filters[:i], x, strides, paddings).shape[2:]
        blocks.append(torch.stack([toeplitz(unit, size, strides[i], paddings[i]).flatten() for unit in units], 1))
    return torch.block_diag(*blocks), [
        toeplitz_of(blocks[i] @ w.flatten(), filters, i, x, strides, paddings) for i, w in enumerate(filters)
    ]


def toeplitz_of(entries, filters, i, x, strides, paddings):
    before, after = (outputs(filters[:j], x, strides, paddings)[0].numel() for j in (i, i + 1))
    return entries.reshape(after, before)


@pytest.mark.claim("Sharing is a compression", verdict="holds")
@a_hundred
@given(networks((1, 2), (1, 1)))
def test_sharing_multiplies_the_jacobian_by_zeros_and_ones(problem):
    filters, x, strides, paddings = problem
    e, chain = sharing(filters, x, strides, paddings)
    unshared, shared = jacobian(chain, x.flatten(1)), shared_jacobian(filters, x, strides, paddings)
    assert (unshared @ e - shared).abs().max() <= 1e-12 * (1 + shared.abs().max())
    counts = e.mT @ e
    assert torch.equal(counts, counts.diag().diag())
    if shared.any():
        top, whole = (torch.linalg.svdvals(j)[0] ** 2 for j in (shared, unshared))
        assert top <= counts.max() * whole * (1 + 1e-9)


@st.composite
def filter_banks(draw):
    m, k = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    return draw(some_filters(m, k)), gaussian(draw(seeds), draw(st.integers(k, 9)))


@pytest.mark.claim("Appendix B, convolution", verdict="holds")
@instances
@given(filter_banks())
def test_entries_of_a_convolution_are_inner_products_of_filters_and_pieces(bank):
    w, x = bank
    (m, k), d = w.shape, len(x)
    printed = torch.stack([torch.stack([w[i] @ x[j : j + k] for j in range(d - k + 1)]) for i in range(m)])
    assert torch.allclose(printed, functional.conv1d(x[None], w[:, None]), rtol=1e-12, atol=1e-10)


def printed_toeplitz(w, d):
    """Return T of appendix B for one filter, written entry by entry."""
    matrix = torch.zeros(d - len(w) + 1, d, dtype=w.dtype)
    for row in range(len(matrix)):
        for tap in range(len(w)):
            matrix[row, row + tap] = w[tap]
    return matrix


@pytest.mark.claim("Appendix B, Toeplitz matrix of filters", verdict="holds")
@instances
@given(filter_banks())
def test_stacked_toeplitz_matrices_are_the_convolution_row_by_row(bank):
    w, x = bank
    matrix = torch.cat([printed_toeplitz(row, len(x)) for row in w])
    assert torch.equal(toeplitz(w[:, None], len(x)), matrix)
    assert torch.allclose(matrix @ x, functional.conv1d(x[None], w[:, None]).flatten(), rtol=1e-12, atol=1e-10)


@pytest.mark.claim("Appendix B, Toeplitz matrix of a layer", verdict="holds")
@instances
@given(one_dimensional((2, 3)))
def test_the_block_of_two_channels_is_the_toeplitz_matrix_of_their_filter(problem):
    filters, x, _, _ = problem
    d = x.shape[2]
    for w in filters:
        (out, fan_in, k), after = w.shape, d - w.shape[2] + 1
        matrix = toeplitz(w, d)
        assert matrix.shape == (out * after, fan_in * d)
        blocks = matrix.reshape(out, after, fan_in, d)
        for i, j in itertools.product(range(out), range(fan_in)):
            assert torch.equal(blocks[i, :, j], printed_toeplitz(w[i, j], d))
        d = d - k + 1


@pytest.mark.claim("Eq. 15", verdict="holds if")
@instances
@given(one_dimensional((2, 3)))
def test_convolutions_from_the_right_are_one_with_the_effective_kernel(problem):
    filters, x, _, _ = problem
    h = torch.eye(filters[0].shape[1]).double()[..., None]  # (out, in, taps), a product of polynomials
    for w in filters:
        total = torch.zeros(len(w), h.shape[1], w.shape[2] + h.shape[2] - 1).double()
        for tap in range(w.shape[2]):
            total[:, :, tap : tap + h.shape[2]] += torch.einsum("mn,nct->mct", w[:, :, tap], h)
        h = total
    scale = 1 + x.abs().max() * torch.stack([w.abs().sum() for w in filters]).prod()
    assert (functional.conv1d(x, h) - outputs(filters, x)).abs().max() <= 1e-13 * scale


@pytest.mark.claim("Eq. 15", verdict="holds if")
def test_the_operation_is_not_associative():
    first, second, x = exact([[[1, 2]]]), exact([[[3, 4]]]), exact([[[1, 0, 0]]])
    from_the_right = functional.conv1d(functional.conv1d(x, first), second)
    from_the_left = functional.conv1d(x, functional.conv1d(first, second))
    assert from_the_right.tolist() == [[[3]]]
    assert from_the_left.tolist() == [[[11, 0, 0]]]


@pytest.mark.claim("Eq. 16", verdict="holds")
@instances
@given(networks())
def test_a_network_is_the_product_of_its_toeplitz_matrices(problem):
    filters, x, strides, paddings = problem
    size, z, scale = x.shape[2:], x.flatten(1), 1 + x.abs().max()
    for i, w in enumerate(filters):
        matrix = toeplitz(w, size, strides[i], paddings[i])
        size = outputs(filters[: i + 1], x, strides, paddings).shape[2:]
        z, scale = z @ matrix.mT, scale * (1 + w.abs().sum())
    assert (z - outputs(filters, x, strides, paddings).flatten(1)).abs().max() <= 1e-13 * scale

"""Zhao 2024, appendix B: convolutions as Toeplitz matrices."""

import itertools

import pytest
import torch
from gnbook.convolution.networks import toeplitz
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from tests.gnbook.convolution.helpers import networks, one_dimensional, outputs, some_filters
from tests.strategies import exact, gaussian, instances, seeds


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


@pytest.mark.claim("Eq. 15", verdict="holds if")
@pytest.mark.parametrize("first, second", [(5, 2), (2, 2), (7, 7), (4, 1)])
def test_the_operation_shortens_filters_and_the_effective_kernel_is_longer_than_both(first, second):
    filters = [gaussian(0, 1, 1, first), gaussian(1, 1, 1, second)]
    assert functional.conv1d(*filters).shape[2] == first - second + 1 <= first
    x = torch.eye(first + second - 1).double()[:, None]
    assert outputs(filters, x).shape[2] == 1 and outputs(filters, x).all()  # it reads as many places as that


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

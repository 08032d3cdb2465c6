"""Zhao 2024, end of section 4 and appendix B: the analysis of linear networks, carried over to convolutions."""

import pytest
import torch
from gnbook import results
from gnbook.convolution.networks import toeplitz
from hypothesis import given
from hypothesis import strategies as st

from gnlib import SecondMoment, whiten
from gnlib.linear.bounds import zhao_lemma_2
from gnlib.linear.gauss_newton import linear_gauss_newton
from tests.gnbook.convolution.helpers import (
    condition,
    networks,
    one_dimensional,
    outputs,
    same_values,
    shared_jacobian,
    true_values,
)
from tests.strategies import (
    a_hundred,
    data_condition,
    exact,
    gaussian,
    instances,
    jacobian,
    nonzero_eigenvalues,
    orthogonal,
    seeds,
)


def toeplitz_chain(filters, x):
    size, chain = x.shape[2], []
    for w in filters:
        chain.append(toeplitz(w, size))
        size = size - w.shape[2] + 1
    return chain


@pytest.mark.claim("Appendix B with Eq. 5", verdict="fails")
@a_hundred
@given(one_dimensional((2, 3)))
def test_eq_5_with_toeplitz_matrices_has_a_parameter_for_each_of_their_entries(problem):
    filters, x, _, _ = problem
    chain = toeplitz_chain(filters, x)
    formula = torch.linalg.eigvalsh(linear_gauss_newton(chain, SecondMoment.from_data(x[:, 0])).dense()).flip(0)
    assert same_values(nonzero_eigenvalues(jacobian(chain, x[:, 0]), len(x)), formula.clamp_min(0))


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


@pytest.mark.claim("Appendix B with Lemma 2", verdict="fails")
@pytest.mark.parametrize("m", [2, 3])
def test_hidden_layers_as_wide_as_the_lemma_asks_for_do_not_help(m):
    first, second = torch.zeros(m, 1, 1).double(), torch.zeros(1, m, 2).double()
    first[0, 0, 0] = second[0, 0, 0] = 1
    chain = toeplitz_chain([first, second], WHITE)
    assert chain[0].shape[0] == 2 * m > 2
    assert zhao_lemma_2(chain, torch.eye(2).double()).first == pytest.approx(1, rel=1e-12)
    values = true_values([first, second], WHITE)
    assert (values[0] / values[-1]).item() == pytest.approx(2, rel=1e-12)


@pytest.mark.claim("Appendix B with Lemma 2", verdict="fails")
@instances
@given(seeds, st.integers(2, 4), st.integers(0, 4))
def test_a_family_exceeds_it_whatever_the_small_first_layer_and_the_data(seed, k, extra):
    """With an unfolded second layer near the identity and a small first layer, filters count paths, which differ."""
    d = 2 * k - 1 + extra
    x = whiten(gaussian(seed, 2 * d, d))[:, None]
    first = 1e-4 * gaussian(seed + 1, k, 1, k)
    second = orthogonal(seed + 2, k)[None]
    values = true_values([first, second], x)
    bound = zhao_lemma_2(toeplitz_chain([first, second], x), SecondMoment.from_data(x[:, 0])).first
    assert (values[0] / values[-1]).item() == pytest.approx(k, rel=1e-3)
    if extra == 0:  # one output: the bound says 1
        assert bound == pytest.approx(1, rel=1e-3)


@pytest.mark.claim("Appendix B with Lemma 2", verdict="fails")
@a_hundred
@given(seeds, st.integers(2, 5))
def test_filters_of_one_tap_are_far_below_it(seed, d):
    filters, x = [gaussian(seed, 1, 1, 1), gaussian(seed + 1, 1, 1, 1)], gaussian(seed + 2, d + 3, 1, d)
    assert len(true_values(filters, x)) == 1  # so that the condition number is one
    bound = zhao_lemma_2(toeplitz_chain(filters, x), SecondMoment.from_data(x[:, 0]))
    assert bound.first == pytest.approx(data_condition(x[:, 0]), rel=1e-6)


@pytest.mark.claim("Figure 8, filters as depth and kernels as width", verdict="fails")
def test_a_second_filter_lowers_the_condition_number():
    x = 3**0.5 * torch.eye(3).double()[:, None]
    one = [exact([[[2, 1]]]), exact([[[1, 2]]])]
    two = [exact([[[2, 1]], [[1, -2]]]), exact([[[1, 2], [2, -1]]])]
    assert condition(one, x) == pytest.approx((5 + 17**0.5) ** 2 / 8, rel=1e-12)
    assert condition(two, x) == pytest.approx(2, rel=1e-12)
    assert len(true_values(one, x)) == len(true_values(two, x)) == 3


@pytest.mark.claim("Figure 8, filters as depth and kernels as width", verdict="fails")
@pytest.mark.parametrize("view", ["pixels in a line", "squares"])
def test_on_whitened_images_more_filters_lower_it_and_larger_kernels_raise_it(view):
    kept = [row for row in results.kept("convolution-further") if row["view"] == view]
    kernels = sorted({row["kernel"] for row in kept})

    def median(kernel, filters):
        found = [row["kappa"] for row in kept if (row["kernel"], row["filters"]) == (kernel, filters)]
        return torch.tensor(found).median().item()

    assert all(median(k, 2) > median(k, 8) > median(k, 64) for k in kernels)
    values = [median(k, 64) for k in kernels]
    assert values == sorted(values) and values[-1] > 4 * values[0]


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


@pytest.mark.claim("Sharing is a compression", verdict="holds")
@a_hundred
@given(seeds, st.integers(1, 5), st.integers(1, 4))
def test_a_kernel_as_long_as_the_input_is_not_shared(seed, d, m):
    filters, x = [gaussian(seed, m, 1, d), gaussian(seed + 1, 2, m, 1)], gaussian(seed + 2, 6, 1, d)
    chain = toeplitz_chain(filters, x)
    assert same_values(true_values(filters, x), nonzero_eigenvalues(jacobian(chain, x[:, 0]), 6))

"""The formula of the public code for Figure 8, block by block and as a whole."""

import pytest
import torch
from gnbook.convolution.networks import convolution_weights, toeplitz
from gnbook.convolution.published import pseudo_condition, two_layer_eigenvalues

from gnlib.linear.bounds import zhao_lemma_1
from tests.oracles import normal

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


def test_with_the_root_it_is_the_matrix_of_the_paper_for_unshared_weights():
    eye = torch.eye(PIXELS, dtype=torch.float64)
    found = pseudo_condition(two_layer_eigenvalues(drawn(0), eye, eye))
    weights = [toeplitz(drawn(0)[0], PIXELS), toeplitz(drawn(0)[1], PIXELS - TAPS + 1)]
    assert found == pytest.approx(zhao_lemma_1(weights, eye), rel=1e-10)


def test_half_of_a_small_second_moment_leaves_the_last_layer_alone():
    white = torch.eye(PIXELS, dtype=torch.float64) / 1e6
    outer = toeplitz(drawn(0)[1], PIXELS - TAPS + 1)
    alone = torch.linalg.eigvalsh(outer @ outer.T)
    found = pseudo_condition(two_layer_eigenvalues(drawn(0), white, white / 2))
    assert found == pytest.approx((alone[-1] / alone[0]).item(), rel=1e-3)


def test_eigenvalues_at_rounding_level_do_not_count_and_negative_ones_do_by_their_size():
    assert pseudo_condition(torch.tensor([4.0, -2.0, 1e-18], dtype=torch.float64)) == 2.0

"""Liu, Zhu and Belkin 2020, appendix G: convolutional and residual networks."""

import pytest
import torch
from gnbook.transition_to_linearity.tensor_norm import norm_221
from hypothesis import given
from hypothesis import strategies as st

from tests.gnbook.transition_to_linearity.helpers import SLACK, SMOOTH, TINY, hess, identity, norm, values
from tests.strategies import gaussian, instances, matrices, seeds


@pytest.mark.claim("Liu Lemma G.1", verdict="holds")
@instances
@given(matrices(3, 2), matrices(2, 4))
def test_the_frobenius_norm_of_a_product(b, c):
    assert torch.linalg.matrix_norm(b @ c) <= norm(b) * torch.linalg.matrix_norm(c) * SLACK


def convolution(w, a, sigma):
    """Eq. 93: filters (K, m', m) on an image (m, Q), in one dimension, zeros around it."""
    count, q = len(w), a.shape[1]
    shifted = torch.nn.functional.pad(a, (count // 2, count // 2))
    return sigma(sum(w[k] @ shifted[:, k : k + q] for k in range(count)) / a.shape[0] ** 0.5)


@st.composite
def convolutions(draw):
    m, q, count, seed = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.sampled_from([1, 3])), draw(seeds)
    scale = draw(st.sampled_from([0.1, 1.0, 3.0]))
    return scale * gaussian(seed, count, m, m), gaussian(seed + 1, m, q), draw(st.sampled_from(list(SMOOTH)))


@pytest.mark.claim("Liu Lemmas G.2 and G.3", verdict="holds")
@pytest.mark.claim("Liu Appendix G.1, norms of a convolution, corrected", verdict="holds")
@instances
@given(convolutions())
def test_values_of_a_convolution_and_its_norms_with_the_term_that_the_mixed_one_lacks(layer):
    w, a, sigma = layer
    (count, m, _), q = w.shape, a.shape[1]
    (slope, bend, at_zero), outputs = SMOOTH[sigma], m * q
    by_input, by_weights = (
        j.reshape(outputs, -1) for j in torch.func.jacrev(lambda a, w: convolution(w, a, sigma), (0, 1))(a, w)
    )
    total, size = sum(norm(f) for f in w) / m**0.5, count * torch.linalg.matrix_norm(a) / m**0.5
    bound = slope * total * torch.linalg.matrix_norm(a) + outputs**0.5 * at_zero
    assert torch.linalg.matrix_norm(convolution(w, a, sigma)) <= bound * SLACK
    assert norm(by_input) <= slope * total * SLACK + TINY and norm(by_weights) <= slope * size * SLACK + TINY
    (aa, aw), (_, ww) = hess(lambda a, w: convolution(w, a, sigma), (0, 1))(a, w)
    aa, aw, ww = (
        t.reshape(outputs, rows, -1).movedim(0, 2) for t, rows in ((aa, a.numel()), (aw, a.numel()), (ww, w.numel()))
    )
    assert norm_221(aa).upper <= bend * total**2 * SLACK + TINY
    assert norm_221(ww).upper <= bend * size**2 * SLACK + TINY
    assert norm_221(aw).upper <= bend * total * size + slope * (count * q) ** 0.5 + TINY


@pytest.mark.claim("Liu Appendix G.1, norms of a convolution", verdict="fails")
def test_the_mixed_norm_of_a_linear_convolution_is_not_zero():
    w, a = torch.ones(1, 1, 1).double(), torch.ones(1, 1).double()
    mixed = hess(lambda a, w: convolution(w, a, identity), (0, 1))(a, w)[0][1]
    assert mixed.item() == 1.0  # in print a multiple of the curvature of the activation, which is zero


@pytest.mark.claim("Liu Lemmas G.4 and G.5", verdict="holds")
@instances
@given(seeds, st.integers(1, 6), st.integers(1, 3), st.sampled_from(list(SMOOTH)))
def test_values_of_a_residual_network(seed, m, depth, sigma):
    weights = [gaussian(seed + i, m, m) for i in range(depth)] + [gaussian(seed + 9, 1, m)]
    x = gaussian(seed + 10, m)
    c, constants = max(norm(w) for w in weights) / m**0.5, SMOOTH[sigma]
    h = values(weights, x, sigma, skip=True)
    bound = constants.lipschitz * c * x.norm() + m**0.5 * constants.at_zero
    assert h[1].norm() <= bound * SLACK
    for value in h[2:]:
        bound = (1 + constants.lipschitz * c) * bound + m**0.5 * constants.at_zero
        assert value.norm() <= bound * SLACK

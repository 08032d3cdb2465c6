"""Liu, Zhu and Belkin 2020, appendices A, E and G: parameterisations, blocks of the Hessian, convolutions and skips."""

import math

import pytest
import torch
from gnbook.transition_to_linearity.tensor_norm import norm_221
from hypothesis import given
from hypothesis import strategies as st

from gnlib import GaussNewton
from tests.gnbook.transition_to_linearity.helpers import (
    SLACK,
    SMOOTH,
    TINY,
    function,
    gradients,
    hess,
    hessian,
    identity,
    module,
    networks,
    second_derivatives,
    slopes,
    values,
)
from tests.oracles import norm
from tests.strategies import exact, gaussian, instances, matrices, seeds


@pytest.mark.claim("Liu Eqs. 36 to 38", verdict="holds if")
@instances
@given(networks(), st.sampled_from([0.1, 0.5, 3.0]))
def test_one_factor_for_all_layers_rescales_kernel_and_hessian_alike(network, scale):
    weights, x, sigma, skip = network
    sizes, shapes = [w.numel() for w in weights], [w.shape for w in weights]

    def rescaled(v):
        pieces = [p.view(s) / scale for p, s in zip(v.split(sizes), shapes, strict=True)]
        return function(pieces, x, sigma, skip)

    v = torch.cat([scale * w.flatten() for w in weights])
    g, h = torch.func.grad(rescaled)(v), hess(rescaled)(v)
    kernel = GaussNewton(module(weights, sigma, skip), x[None]).tangent_kernel()[0, 0]
    assert torch.isclose(g @ g, kernel / scale**2, rtol=1e-9, atol=TINY / scale**2)
    whole = hessian(weights, x, sigma, skip)
    assert torch.allclose(h, whole / scale**2, rtol=1e-8, atol=1e-10 * (1 + norm(whole)) / scale**2)


def lecun(m, first_deviation):
    """Norms of the kernel and of the Hessian of v tanh(w x), x = 1, with v of variance 1/m, by its units."""
    w, v = gaussian(0, m) * first_deviation, gaussian(1, m) / m**0.5
    first, second = slopes(torch.tanh, w)
    corner = (v * second).abs()
    kernel = torch.tanh(w).square().sum() + (v * first).square().sum()
    return kernel.item(), (corner / 2 + torch.hypot(corner / 2, first)).max().item()


@pytest.mark.claim("Liu Eq. 40", verdict="fails")
def test_variance_one_over_width_in_every_layer_keeps_the_ratio():
    ratios = [h / k for k, h in (lecun(m, m**-0.5) for m in (100, 10_000, 1_000_000))]
    assert all(0.4 < r < 0.6 for r in ratios)  # so the Hessian is not o(kernel)
    assert lecun(1_000_000, 1e-3)[0] < 3  # and the kernel is not of the order of the width


@pytest.mark.claim("Liu Eq. 40, corrected", verdict="holds")
def test_variance_one_over_fan_in_has_the_orders_of_eq_40():
    (k1, h1), (k2, h2) = lecun(100, 1.0), lecun(1_000_000, 1.0)
    assert 0.5 < k2 / k1 / 10_000 < 2 and h2 <= 100 * h1 and h2 / k2 < h1 / k1 / 50


@pytest.mark.claim("Liu Appendix A, constant kernel", verdict="holds if")
def test_in_a_ball_of_fixed_radius_the_rescaled_kernel_is_not_constant():
    for m in (100, 100_000):  # f = v tanh(sqrt(m) w) / sqrt(m), v = 1: a step of length one adds 1 to all sqrt(m) w
        z = gaussian(0, m)
        before, after = (slopes(torch.tanh, s)[0].square().sum() for s in (z, z + 1))
        assert after / before < 0.9
        ratio = m**0.5 * slopes(torch.tanh, z)[1].abs().max() / before
        assert ratio < 4 / m**0.5  # although the Hessian is far below the kernel
        short = slopes(torch.tanh, z + m**-0.5)[0].square().sum()
        assert abs(short / before - 1) < 2 / m**0.5  # a step of length 1 / sqrt(m)


@pytest.mark.claim("Liu Eq. 41", verdict="holds if")
@pytest.mark.parametrize("scale", [0.1, 2.0])
def test_descent_on_rescaled_weights_takes_the_same_way_rescaled(scale):
    start, x, y = gaussian(0, 5), 1.3, 0.7

    def way(scale, rate):
        w = scale * start
        for _ in range(50):
            w = w - rate * torch.func.grad(lambda w: 0.5 * (torch.tanh(w / scale * x).sum() - y) ** 2)(w)
        return w

    plain, scaled = way(1.0, 0.02), way(scale, 0.02 * scale**2)
    assert torch.allclose(scaled, scale * plain, rtol=1e-10)


@pytest.mark.claim("Liu Lemma E.1", verdict="holds")
@instances
@given(seeds, st.integers(1, 3), st.integers(1, 3))
def test_a_matrix_is_no_larger_than_the_sum_of_its_blocks(seed, size, count):
    blocks = gaussian(seed, count, count, size, size)
    norms = torch.linalg.matrix_norm(blocks, 2)
    whole = norm(blocks.transpose(1, 2).reshape(count * size, count * size))
    assert whole <= norm(norms) * SLACK <= norms.sum() * SLACK**2


def blocks_of_the_hessian(weights, x, sigma, printed):
    """H^(l1, l2) of the hidden layers as Appendix E has them, or with its slips corrected."""
    h, b = values(weights, x, sigma), gradients(weights, x, sigma)
    pre = [w @ a / len(a) ** 0.5 for w, a in zip(weights[:-1], h, strict=False)]
    first = [slopes(sigma, z)[0] for z in pre]
    by_input = [f[:, None] * w / w.shape[1] ** 0.5 for f, w in zip(first, weights, strict=False)]
    by_weights = [torch.kron(f.diag().contiguous(), a[None] / len(a) ** 0.5) for f, a in zip(first, h, strict=False)]
    tensors = [second_derivatives(w, a, sigma) for w, a in zip(weights[:-1], h, strict=False)]

    def chain(start, stop):  # d alpha_stop / d w_start
        result = by_weights[start]
        for index in range(start + 1, stop + 1):
            result = by_input[index] @ result
        return result

    def block(l1, l2):
        aa, aw, ww = zip(*tensors, strict=True)
        total = torch.zeros(weights[l1].numel(), weights[l2].numel(), dtype=torch.float64)
        if l1 == l2:
            total = total + ww[l1] @ b[l1]
        elif not printed or l1 < l2:
            total = total + chain(l1, l2 - 1).mT @ (aw[l2] @ b[l2])
        for index in range(l2 + 1, len(h) - 1):
            right = chain(l2, index if printed else index - 1)
            total = total + chain(l1, index - 1).mT @ (aa[index] @ b[index]) @ right
        return total

    count = len(weights) - 1
    return {(l1, l2): block(l1, l2) for l1 in range(count) for l2 in range(l1, count)}


@pytest.mark.claim("Liu Appendix E, blocks of the Hessian", verdict="fails")
def test_one_factor_too_many_in_the_printed_blocks():
    weights = [exact([[w]]) for w in (1.0, 0.5, 1.0)]
    block = hessian(weights, exact([1.0]), torch.tanh)[0, 0]
    printed, corrected = (
        blocks_of_the_hessian(weights, exact([1.0]), torch.tanh, printed)[0, 0].item() for printed in (True, False)
    )
    assert math.isclose(corrected, block, rel_tol=1e-12) and abs(printed - block) > 0.01


@pytest.mark.claim("Liu Appendix E, blocks of the Hessian, corrected", verdict="holds")
@instances
@given(networks(skips=False))
def test_the_blocks_of_the_hessian(network):
    weights, x, sigma, _ = network
    h = hessian(weights, x, sigma, fixed=True)
    offsets = [0, *torch.tensor([w.numel() for w in weights[:-1]]).cumsum(0).tolist()]
    for (l1, l2), block in blocks_of_the_hessian(weights, x, sigma, printed=False).items():
        part = h[offsets[l1] : offsets[l1 + 1], offsets[l2] : offsets[l2 + 1]]
        assert torch.allclose(block, part, rtol=1e-8, atol=1e-9 * (1 + norm(h)))


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

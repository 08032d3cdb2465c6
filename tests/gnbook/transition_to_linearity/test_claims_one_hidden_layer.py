"""Liu, Zhu and Belkin 2020, sections 1, 2 and 3.1, appendix A: a small Hessian makes a constant kernel."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from gnbook.transition_to_linearity.linearity import liu_proposition_2_3, norm_221
from hypothesis import given
from hypothesis import strategies as st

from gnlib import GaussNewton
from tests.gnbook.transition_to_linearity.helpers import (
    SLACK,
    SMOOTH,
    TINY,
    as_function,
    by_units,
    flat,
    hessian,
    module,
    networks,
    slopes,
)
from tests.oracles import norm
from tests.strategies import exact, gaussian, instances, seeds


@pytest.mark.claim("Liu Eq. 9", verdict="holds")
@pytest.mark.claim("Liu Eq. 10", verdict="holds if")
@pytest.mark.claim("Liu Eq. 12", verdict="holds")
@pytest.mark.claim("Liu Eq. 13, corrected", verdict="holds")
@pytest.mark.claim("Liu Eq. 14", verdict="holds if")
@pytest.mark.claim("Liu Eq. 15", verdict="holds")
@instances
@given(
    seeds,
    st.integers(1, 8),
    st.sampled_from([0.0, 1.0, 5.0]),
    st.sampled_from([-3.0, -1.0, 0.0, 0.2, 2.0]),
    st.sampled_from(list(SMOOTH)),
    st.booleans(),
)
def test_hessian_kernel_and_221_norm_of_one_hidden_layer(seed, m, scale, x, sigma, signs):
    w, v = scale * gaussian(seed, m), gaussian(seed + 1, m)
    b, bend = (v.sign() if signs else v) / m**0.5, SMOOTH[sigma].curvature * x**2

    def f(w):  # Eq. 8
        return b @ sigma(w * x)

    first, second = slopes(sigma, w * x)
    h, kernel = torch.func.hessian(f)(w), torch.func.grad(f)(w).square().sum()
    tensor, slope = torch.func.hessian(lambda w: sigma(w * x))(w).movedim(0, 2), (x * first).abs()
    assert torch.allclose(h, (b * second * x**2).diag(), atol=TINY) and torch.allclose(h, tensor @ b, atol=TINY)
    assert math.isclose(norm_221(tensor), second.abs().max().item() * x**2, rel_tol=1e-9, abs_tol=TINY)
    assert norm_221(tensor) <= bend * SLACK
    assert norm(h) <= norm_221(tensor) * b.abs().max() * SLACK + TINY
    assert torch.isclose(kernel, (slope * b).square().sum(), atol=TINY)
    assert slope.min() ** 2 * (b @ b) <= kernel * SLACK + TINY <= slope.max() ** 2 * (b @ b) * SLACK**2 + 2 * TINY
    if signs:
        assert torch.isclose(b.abs().max(), exact(m**-0.5)) and torch.isclose(b @ b, exact(1.0))
        assert norm(h) <= bend / m**0.5 * SLACK + TINY
        assert torch.isclose(kernel, slope.square().mean(), atol=TINY)


@pytest.mark.claim("Liu Eq. 10", verdict="holds if")
@pytest.mark.claim("Liu Eq. 15", verdict="holds")
@pytest.mark.claim("One hidden layer in the limit", verdict="holds")
@pytest.mark.parametrize("x", [0.0, 0.5, 1.7, 2.0])
def test_the_kernel_tends_to_an_expectation_and_the_largest_curvature_to_that_of_the_activation(x):
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    limit = x**2 * (weights / weights.sum() * (1 - np.tanh(nodes * x) ** 2) ** 2).sum()
    kernel = x**2 * slopes(torch.tanh, gaussian(0, 400_000) * x)[0].square().mean().item()
    assert math.isclose(kernel, limit, rel_tol=0.01) and (limit > 0) == (x > 0)
    for sigma in SMOOTH if x == 1.7 else ():
        largest = [slopes(sigma, gaussian(0, m) * x)[1].abs().max().item() for m in (100, 10_000, 1_000_000)]
        errors = [SMOOTH[sigma].curvature * x**2 - value * x**2 for value in largest]
        assert 0 <= errors[2] <= errors[1] <= errors[0] and errors[2] < 1e-6
    assert gaussian(0, 10_000).abs().max() > 3  # the output layer of section 3.3


@pytest.mark.claim("Liu Section 3.1, positive definite kernel", verdict="fails")
def test_an_odd_activation_makes_the_kernel_of_an_input_and_its_opposite_singular():
    w, v = gaussian(0, 50), gaussian(1, 50).sign()
    rows = torch.func.jacrev(lambda w: v @ torch.tanh(w[:, None] * exact([1.0, -1.0])) / 50**0.5)(w)
    values = torch.linalg.eigvalsh(rows @ rows.mT)
    assert values[0] < 1e-14 and values[1] > 0.1
    assert torch.trace(rows @ rows.mT) / 2 <= values[1] <= torch.trace(rows @ rows.mT)  # what is needed, and holds


@pytest.mark.claim("Liu Eq. 13", verdict="fails")
@pytest.mark.claim("Liu Eq. 14", verdict="holds if")
def test_neither_is_the_second_derivative_the_first_nor_the_kernel_of_the_order_of_the_norm():
    first, second = slopes(torch.sigmoid, exact([0.0]))
    assert first.item() * 2.0 == 0.5 and second.item() * 2.0**2 == 0.0  # at w = 0, x = 2; the first one is in print
    _, second = slopes(torch.sigmoid, exact([-math.log(2 + 3**0.5)]))  # at x = 4 the printed bound is too small
    assert second.abs().item() * 4.0**2 > 1.5 * SMOOTH[torch.sigmoid].lipschitz * 4.0
    kernels = [(scale * exact([1.0])).square().sum() / scale for scale in (1e-3, 1e3)]  # f = scale * w, no square
    assert kernels[1] / kernels[0] > 1e5


@pytest.mark.claim("One hidden layer, exactly", verdict="holds")
@instances
@given(networks(most=1, skips=False))
def test_the_hessian_of_one_hidden_layer_splits_into_units(network):
    weights, x, sigma, _ = network
    m, root = len(weights[0]), len(x) ** 0.5
    kernel, largest = by_units(weights[1][0], weights[0] @ x / root, (x.norm() / root).item(), sigma)
    assert math.isclose(norm(hessian(weights, x, sigma)), largest / m**0.5, rel_tol=1e-9, abs_tol=TINY)
    assert math.isclose(
        GaussNewton(module(weights, sigma), x[None]).tangent_kernel().item(), kernel / m, rel_tol=1e-9, abs_tol=TINY
    )


@pytest.mark.claim("Liu Eq. 2", verdict="holds if")
@instances
@given(seeds, st.integers(1, 6), st.sampled_from([-2.0, 0.3, 1.0]), st.sampled_from([1e-3, 1.0, 10.0]))
def test_the_way_is_at_least_the_error_over_the_largest_gradient_if_it_reaches_the_label(seed, m, x, size):
    start, v = gaussian(seed, m), gaussian(seed + 1, m).sign()
    end = start + size * gaussian(seed + 2, m)
    before, after = (v @ torch.tanh(w * x) / m**0.5 for w in (start, end))
    way = torch.linalg.vector_norm(end - start)
    assert way * SLACK >= abs(before - after) / abs(x)  # |x| bounds the gradient
    label = after + torch.copysign(10 * way * abs(x), after - before)  # beyond what is reached
    assert way < abs(before - label) / abs(x)


@pytest.mark.claim("Liu Eq. 4", verdict="holds")
@instances
@given(seeds, st.sampled_from([0.1, 2.0, 50.0]), st.floats(-3, 3))
def test_scaling_a_model_is_scaling_its_label(seed, alpha, label):
    w = gaussian(seed, 3)

    def criterion(scale, label):
        def f(w):
            return scale * (torch.tanh(w).sum() + w.prod())

        return (f(w) - label).abs() * norm(torch.func.hessian(f)(w)) / torch.func.grad(f)(w).square().sum()

    assert torch.isclose(criterion(alpha, label), criterion(1.0, label / alpha), rtol=1e-10)


@pytest.mark.claim("Liu Proposition 2.1", verdict="holds")
@pytest.mark.claim("Signed sums", verdict="holds")
@instances
@given(seeds, *[st.integers(1, 4)] * 2, st.integers(1, 6), st.booleans(), st.sampled_from([1e-2, 1.0]))
def test_signed_sums_are_the_definition_and_the_least_constant_of_a_contraction(seed, d1, d2, d3, definite, size):
    slices, v = size * gaussian(seed, d3, d1, d2), gaussian(seed + 1, d3)
    if definite:
        slices = slices @ slices.mT * v.sign()[:, None, None]
    tensor = slices.movedim(0, 2)
    largest = norm_221(tensor)
    assert norm(tensor @ v) <= largest * v.abs().max() * SLACK
    signs = max(product((1.0, -1.0), repeat=d3), key=lambda s: norm(tensor @ exact(s)))
    u, s, vh = torch.linalg.svd(tensor @ exact(signs))
    attained = torch.einsum("ijk,i,j->k", tensor, u[:, 0], vh[0]).abs().sum().item()
    assert [s[0].item(), attained] == pytest.approx([largest] * 2, rel=1e-10)
    x, z = (torch.nn.functional.normalize(gaussian(seed + i, 500, d)) for i, d in enumerate(tensor.shape[:2], 1))
    assert torch.einsum("ijk,ni,nj->nk", tensor, x, z).abs().sum(1).max() <= largest * SLACK
    squared = 1.0  # of the bound by absolute values of slices
    for grams in (slices.mT @ slices, slices @ slices.mT):
        values, q = torch.linalg.eigh(grams)
        squared *= norm(((q * values.clamp_min(0).sqrt()[:, None]) @ q.mT).sum(0))
    assert largest <= squared**0.5 * (1 + 1e-7)
    assert not definite or math.isclose(largest, squared**0.5, rel_tol=1e-7)


@pytest.mark.claim("Liu Proposition 2.2", verdict="holds")
@instances
@given(seeds, st.integers(1, 4), st.booleans())
def test_the_kernel_is_constant_exactly_for_affine_models(seed, p, affine):
    g, a = gaussian(seed, p), gaussian(seed + 1, p, p)

    def f(w):
        return g @ w + 1 + (0.0 if affine else (w @ a @ w) / 2 + torch.sin(w).sum())

    kernels = torch.stack([torch.func.grad(f)(w).square().sum() for w in 3 * gaussian(seed + 2, 20, p)])
    assert (kernels.max() - kernels.min() <= 1e-12 * kernels.max()) == affine


@pytest.mark.claim("Constant kernel in a ball", verdict="holds")
@instances
@given(seeds, st.integers(2, 4), st.booleans(), st.sampled_from([0.1, 1.0, 5.0]))
def test_a_constant_kernel_in_a_ball_bounds_the_hessian_at_its_centre(seed, p, cone, slope):
    bent = p if cone else 2  # entries of a cone, or of a cylinder over one

    def f(w):  # not affine although its gradient has the same norm wherever it has one
        return slope * torch.linalg.vector_norm(w[:bent]) + 0.7 * w[bent:].sum()

    centre = gaussian(seed, p)
    radius = torch.linalg.vector_norm(centre[:bent])  # as far as f is differentiable
    size = torch.linalg.vector_norm(torch.func.grad(f)(centre))
    near = [torch.func.grad(f)(centre + 0.9 * radius * d / d.norm()) for d in gaussian(seed + 1, 5, p)]
    assert all(torch.isclose(torch.linalg.vector_norm(g), size, rtol=1e-10) for g in near)
    curvature = norm(torch.func.hessian(f)(centre))
    assert 0 < curvature <= size / radius * (1 + 1e-8)
    assert not cone or math.isclose(curvature, size / radius, rel_tol=1e-8)


@pytest.mark.claim("Liu Proposition 2.3", verdict="holds if")
@instances
@given(st.floats(0, 100), st.floats(0.01, 10), st.floats(0.01, 10))
def test_a_parabola_attains_the_bound_so_no_constant_serves_all_gradients(g, epsilon, radius):
    moved = (g + epsilon * radius) ** 2 - g**2  # f = g w + epsilon w^2 / 2
    bound = liu_proposition_2_3(exact([g]), exact([epsilon]), radius).item()
    assert math.isclose(moved, bound, rel_tol=1e-6, abs_tol=1e-9)
    assert math.isclose(bound / (epsilon * radius), 2 * g + epsilon * radius, rel_tol=1e-9)


# ---- Appendix A: parameterisations ----------------------------------------------------------------------------------


@pytest.mark.claim("Liu Eqs. 36 to 38", verdict="holds if")
@pytest.mark.claim("Tangent kernel and Gauss-Newton", verdict="holds")
@instances
@given(networks(), st.integers(1, 4), seeds, st.sampled_from([0.1, 0.5, 3.0]))
def test_the_tangent_kernel_is_a_gram_matrix_and_one_factor_rescales_it_like_the_hessian(network, n, seed, scale):
    weights, x, sigma, skip = network
    v, x = scale * flat(weights), gaussian(seed, n, len(x))

    def rescaled(v):
        return torch.stack([as_function(weights, one, sigma, skip)(v / scale) for one in x])

    jacobian, g = scale * torch.func.jacrev(rescaled)(v), GaussNewton(module(weights, sigma, skip), x)
    kernel = g.tangent_kernel()
    assert torch.allclose(kernel, jacobian @ jacobian.mT, rtol=1e-10, atol=1e-10 * norm(jacobian) ** 2)
    assert torch.equal(kernel, n * g.gram())
    whole, found = hessian(weights, x[0], sigma, skip), torch.func.hessian(lambda v: rescaled(v)[0])(v)
    assert torch.allclose(found, whole / scale**2, rtol=1e-8, atol=1e-10 * (1 + norm(whole)) / scale**2)


def lecun(m, first_deviation):
    """Norms of the kernel and of the Hessian of v tanh(w x), x = 1, with v of variance 1/m, by its units."""
    return by_units(gaussian(1, m) / m**0.5, gaussian(0, m) * first_deviation, 1.0)


@pytest.mark.claim("Liu Eq. 40", verdict="fails")
@pytest.mark.claim("Liu Eq. 40, corrected", verdict="holds")
def test_variance_one_over_width_keeps_the_ratio_and_one_over_fan_in_has_the_orders_of_eq_40():
    ratios = [h / k for k, h in (lecun(m, m**-0.5) for m in (100, 10_000, 1_000_000))]
    assert all(0.4 < r < 0.6 for r in ratios)  # so the Hessian is not o(kernel)
    assert lecun(1_000_000, 1e-3)[0] < 3  # and the kernel is not of the order of the width
    (k1, h1), (k2, h2) = lecun(100, 1.0), lecun(1_000_000, 1.0)
    assert 0.5 < k2 / k1 / 10_000 < 2 and h2 <= 100 * h1 and h2 / k2 < h1 / k1 / 50


@pytest.mark.claim("Liu Appendix A, constant kernel", verdict="holds if")
def test_in_a_ball_of_fixed_radius_the_rescaled_kernel_is_not_constant():
    for m in (100, 100_000):  # f = v tanh(sqrt(m) w) / sqrt(m), v = 1: a step of length one adds 1 to all sqrt(m) w
        z = gaussian(0, m)
        before, after, short = (slopes(torch.tanh, z + s)[0].square().sum() for s in (0, 1, m**-0.5))
        assert after / before < 0.9
        ratio = m**0.5 * slopes(torch.tanh, z)[1].abs().max() / before
        assert ratio < 4 / m**0.5  # although the Hessian is far below the kernel
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

"""Liu, Zhu and Belkin 2020, sections 1, 2 and 3.1, appendix A: a small Hessian makes a constant kernel; its drift."""

import math
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from gnbook.transition_to_linearity.ball import TANH
from gnbook.transition_to_linearity.linearity import liu_proposition_2_3, norm_221
from hypothesis import given
from hypothesis import strategies as st

from gnlib import GaussNewton
from gnlib.laws import relu_kernel
from tests.gnbook.transition_to_linearity import helpers
from tests.gnbook.transition_to_linearity.helpers import SLACK, SMOOTH, TINY, hess, hessian, module, networks, slopes
from tests.oracles import norm
from tests.strategies import exact, gaussian, seeds


@pytest.mark.claim("Liu Eq. 9", "Liu Eq. 12", "Liu Eq. 13, corrected", "Liu Eq. 15", verdict="holds")
@pytest.mark.claim("Liu Eq. 10", "Liu Eq. 14", verdict="holds if")
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
    h, kernel = hess(f)(w), torch.func.grad(f)(w).square().sum()
    tensor, slope = hess(lambda w: sigma(w * x))(w).movedim(0, 2), (x * first).abs()
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
@pytest.mark.claim("Liu Eq. 15", "One hidden layer in the limit", verdict="holds")
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
@given(networks(most=1, skips=False))
def test_the_hessian_of_one_hidden_layer_splits_into_units(network):
    weights, x, sigma, _ = network
    m, root = len(weights[0]), len(x) ** 0.5
    kernel, largest = helpers.by_units(weights[1][0], weights[0] @ x / root, (x.norm() / root).item(), sigma)
    assert math.isclose(norm(hessian(weights, x, sigma)), largest / m**0.5, rel_tol=1e-9, abs_tol=TINY)
    assert math.isclose(
        GaussNewton(module(weights, sigma), x[None]).tangent_kernel().item(), kernel / m, rel_tol=1e-9, abs_tol=TINY
    )


@pytest.mark.claim("Liu Eq. 2", verdict="holds if")
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
@given(seeds, st.sampled_from([0.1, 2.0, 50.0]), st.floats(-3, 3))
def test_scaling_a_model_is_scaling_its_label(seed, alpha, label):
    w = gaussian(seed, 3)

    def criterion(scale, label):
        def f(w):
            return scale * (torch.tanh(w).sum() + w.prod())

        return (f(w) - label).abs() * norm(hess(f)(w)) / torch.func.grad(f)(w).square().sum()

    assert torch.isclose(criterion(alpha, label), criterion(1.0, label / alpha), rtol=1e-10)


@pytest.mark.claim("Liu Proposition 2.1", "Signed sums", verdict="holds")
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
@given(seeds, st.integers(1, 4), st.booleans())
def test_the_kernel_is_constant_exactly_for_affine_models(seed, p, affine):
    g, a = gaussian(seed, p), gaussian(seed + 1, p, p)

    def f(w):
        return g @ w + 1 + (0.0 if affine else (w @ a @ w) / 2 + torch.sin(w).sum())

    kernels = torch.stack([torch.func.grad(f)(w).square().sum() for w in 3 * gaussian(seed + 2, 20, p)])
    assert (kernels.max() - kernels.min() <= 1e-12 * kernels.max()) == affine


@pytest.mark.claim("Constant kernel in a ball", verdict="holds")
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
    curvature = norm(hess(f)(centre))
    assert 0 < curvature <= size / radius * (1 + 1e-8)
    assert not cone or math.isclose(curvature, size / radius, rel_tol=1e-8)


@pytest.mark.claim("Liu Proposition 2.3", verdict="holds if")
@given(st.floats(0, 100), st.floats(0.01, 10), st.floats(0.01, 10))
def test_a_parabola_attains_the_bound_so_no_constant_serves_all_gradients(g, epsilon, radius):
    moved = (g + epsilon * radius) ** 2 - g**2  # f = g w + epsilon w^2 / 2
    bound = liu_proposition_2_3(exact([g]), exact([epsilon]), radius).item()
    assert math.isclose(moved, bound, rel_tol=1e-6, abs_tol=1e-9)
    assert math.isclose(bound / (epsilon * radius), 2 * g + epsilon * radius, rel_tol=1e-9)


# ---- Appendix A: parameterisations ----------------------------------------------------------------------------------


@pytest.mark.claim("Liu Eqs. 36 to 38", verdict="holds if")
@pytest.mark.claim("Tangent kernel and Gauss-Newton", verdict="holds")
@given(networks(), st.integers(1, 4), seeds, st.sampled_from([0.1, 0.5, 3.0]))
def test_the_tangent_kernel_is_a_gram_matrix_and_one_factor_rescales_it_like_the_hessian(network, n, seed, scale):
    weights, x, sigma, skip = network
    v, x = scale * helpers.flat(weights), gaussian(seed, n, len(x))

    def rescaled(v):
        return torch.stack([helpers.as_function(weights, one, sigma, skip)(v / scale) for one in x])

    jacobian, g = scale * torch.func.jacrev(rescaled)(v), GaussNewton(module(weights, sigma, skip), x)
    kernel = g.tangent_kernel()
    assert torch.allclose(kernel, jacobian @ jacobian.mT, rtol=1e-10, atol=1e-10 * norm(jacobian) ** 2)
    assert torch.equal(kernel, n * g.gram())
    whole, found = hessian(weights, x[0], sigma, skip), hess(lambda v: rescaled(v)[0])(v)
    assert torch.allclose(found, whole / scale**2, rtol=1e-8, atol=1e-10 * (1 + norm(whole)) / scale**2)


def lecun(m, first_deviation):
    """Norms of the kernel and of the Hessian of v tanh(w x), x = 1, with v of variance 1/m, by its units."""
    return helpers.by_units(gaussian(1, m) / m**0.5, gaussian(0, m) * first_deviation, 1.0)


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


# ---- The order in which the kernel changes: a drift for kinks, none for smooth activations ---------------------------
#
# For f = m^(-1/2) sum_j a_j max(0, w_j . x) training moves each w_j . x_i by about m^(-1/2), so only units that are
# so close to zero on a sample pass it: a share of m^(-1/2) of them. Near zero on sample i the push on a unit is one
# number below zero, and another above, where sample i pushes too. A unit that sample i switches off is no longer
# pushed by it, so more units leave than come.

STEPS, PARTICLES, SPAN = (1500, 400, 14.0)  # of time; units at a boundary; times that of the slowest eigenvector


def descent(m, x, gap, seed, rate=0.5, tolerance=1e-7):
    """The kernel of both layers before and after descent until every output has moved by its gap."""
    rng = np.random.default_rng(seed)
    a, w = rng.standard_normal(m), rng.standard_normal((m, x.shape[1]))
    before, rate = kernel(a, w, x), rate / (x**2).sum(1).max() / len(x)
    f = np.maximum(w @ x.T, 0).T @ a / m**0.5
    y = f + gap
    while np.abs(f - y).max() > tolerance:
        z, r = w @ x.T, rate * (f - y) / m**0.5
        a, w = a - np.maximum(z, 0) @ r, w - ((z > 0) * a[:, None] * r) @ x
        f = np.maximum(w @ x.T, 0).T @ a / m**0.5
    return before, kernel(a, w, x)


def kernel(a, w, x):
    h = np.maximum(w @ x.T, 0)
    b = (h > 0) * a[:, None]
    return (h.T @ h + (x @ x.T) * (b.T @ b)) / len(a)


@pytest.mark.claim("The drift of one sample", verdict="holds")
@pytest.mark.parametrize("gap, size", [(1.0, 1.0), (-2.0, 1.0), (1.0, 2.0)])
def test_one_sample_loses_its_gap_over_pi(gap, size):
    m, runs, x = 20_000, 60, np.array([[size, 0.0]])
    pairs = [descent(m, x, np.array([gap]), seed) for seed in range(runs)]
    found = np.array([(after - before) / before for before, after in pairs]) * m**0.5
    law = -abs(gap) / (math.pi * size)
    scatter = (4 * abs(gap) / (math.pi * size)) ** 0.5 * m**-0.25
    assert found.mean() == pytest.approx(law, abs=3 * scatter / runs**0.5 + 0.04 * abs(law))
    assert found.std() == pytest.approx(scatter, rel=0.3)


def kernel_drift(x, gap, draws=20_000):
    r"""The limit of :math:`\sqrt m\, (K - K_0)` for gradient flow of both layers on some samples.

    The patterns of other samples are drawn for units whose weights are orthogonal to a sample; at each boundary the
    flow of units is followed step by step. Errors are about two hundredths of the largest entry.
    """
    gram, norms = x @ x.T, np.linalg.norm(x, axis=1)
    sizes = np.outer(norms, norms)
    values, vectors = np.linalg.eigh(sizes * relu_kernel(gram / sizes, depth=2))
    times = np.concatenate([[0.0], np.geomspace(1e-3 / values[-1], SPAN / values[0], STEPS)])
    paces = np.exp(-times[:, None] * values) * (vectors.T @ gap) @ vectors.T  # y - f at each time
    rng, drift = np.random.default_rng(0), np.zeros_like(gram)
    for i in range(len(x)):
        weights = rng.standard_normal((draws, x.shape[1]))
        weights -= np.outer(weights @ x[i], x[i] / norms[i] ** 2)
        active = weights @ x.T > 0
        active[:, i] = False
        patterns, counts = np.unique(active, axis=0, return_counts=True)
        below = (paces * gram[i]) @ patterns.T  # of each pattern at each time
        gained = gained_units(below, below + paces[:, i : i + 1] * gram[i, i], times)
        patterns[:, i] = True
        drift[i] = gram[i] * ((counts / draws * gained) @ patterns) / (math.pi * norms[i])
    return drift + drift.T - np.diag(drift.diagonal())


def gained_units(below, above, times):
    r"""By how many more units are above zero in the end, both signs of the output weight together.

    Units of density one follow :math:`\dot u = \pm` `above` where they are above zero, :math:`\pm` `below` elsewhere.
    Where neither changes its sign it is :math:`\int |\text{below}| - |\text{above}|`: what comes less what leaves.
    """
    reach = 1.1 * np.trapezoid(np.maximum(np.abs(below), np.abs(above)), times, axis=0) + 1e-12
    gained = np.zeros(below.shape[1])
    for sign in (1, -1):
        u = reach[:, None] * (np.arange(PARTICLES) + 0.5 - PARTICLES / 2) / (PARTICLES / 2)
        ended = []
        for step, (start, end) in enumerate(pairwise(times)):
            u += sign * (end - start) * np.where(u > 0, above[step][:, None], below[step][:, None])
            ended.append((u > 0).sum(1) - PARTICLES / 2)
        late = np.mean(ended[-len(ended) // 20 :], axis=0)  # units held at zero are above it for a part of the time
        gained += late * 2 * reach / PARTICLES
    return gained


@pytest.mark.claim("The drift of several samples", verdict="holds")
def test_three_samples_drift_as_foretold():
    rng = np.random.default_rng(5)
    x, gap = rng.standard_normal((3, 4)), np.array([1.2, -0.8, 0.9])
    x /= np.linalg.norm(x, axis=1)[:, None]
    law, m, runs = kernel_drift(x, gap), 20_000, 60
    pairs = [descent(m, x, gap, seed, rate=1.0, tolerance=1e-3) for seed in range(runs)]
    found = m**0.5 * np.array([after - before for before, after in pairs])
    assert np.abs(found.mean(0) - law).max() < 0.055 < np.abs(law).max() / 3
    assert np.abs(found.std(0)).max() / runs**0.5 < 0.02


def parted(f, w, y, share, steps):
    """Step by step: how far outputs and the linear model are apart, and the bound over that on the Hessian.

    The rate is a share of 1 / lambda_max; at a share of 2 the linear model is barely stable.
    """
    jacobian, start, n = torch.func.jacrev(f)(w), w, len(y)
    largest, kernel = norm(jacobian), jacobian @ jacobian.mT / n
    rate, linear, path, total = share * n / largest**2, f(w) - y, 0.0, 0.0
    for _ in range(steps):
        residual = f(w) - y
        step = -rate / n * torch.func.vjp(f, w)[1](residual)[0]
        total += rate / n * largest * path * residual.norm().item()
        w, path, linear = w + step, path + step.norm().item(), linear - rate * kernel @ linear
        assert (w - start).norm() <= path * SLACK
        yield (f(w) - y - linear).norm().item(), path**2 / 2 + total


@pytest.mark.claim("Descent of the linear model", verdict="holds")
@given(
    seeds,
    *(st.integers(1, most) for most in (3, 5, 3, 2)),
    st.sampled_from([0.0, 1.0, 5.0]),
    st.sampled_from([1e-3, 0.5, 1.0, 2.0]),
    st.sampled_from([0.1, 1.0, 30.0]),
)
def test_network_and_linear_model_part_no_further_than_hessians_allow(seed, d, m, n, k, scale, share, far):
    x, v, w = gaussian(seed, n, d), gaussian(seed + 1, k, m) / m**0.5, scale * gaussian(seed + 2, m * d)

    def f(w):  # one hidden layer, of which the first weights move
        return (torch.tanh(x @ w.view(m, d).mT) @ v.mT).flatten()

    # the second derivative by u is V (tanh'' * X u * X u), so of sample i at most |V| |x_i|^2 max |tanh''| for unit u
    bound = TANH.curvature * norm(v) * (x.square().sum(1) ** 2).sum().sqrt().item()
    for apart, over in parted(f, w, far * gaussian(seed + 3, n * k), share, 10):
        assert apart <= bound * over * SLACK + TINY * (1 + far)
    move = far * gaussian(seed + 4, len(w))
    change = torch.func.jacrev(f)(w) @ move
    assert (f(w + move) - f(w) - change).norm() <= SLACK * bound / 2 * move.square().sum() + TINY


@pytest.mark.claim("Descent of the linear model", verdict="holds")
@pytest.mark.parametrize("g", [0.1, 1.0, 7.0])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 10.0])
def test_a_parabola_attains_both_after_one_step(g, epsilon):
    [(apart, over)] = parted(lambda w: g * w + epsilon * w**2 / 2, exact([0.0]), exact([2.0]), 0.3, 1)
    assert apart == pytest.approx(epsilon * over, rel=1e-10)
    assert apart == pytest.approx(epsilon / 2 * (0.6 / g) ** 2, rel=1e-10)

"""Liu, Zhu and Belkin 2020, section 3.1: kernel and Hessian of one hidden layer with one input.

Liu, Zhu and Belkin 2020, sections 1 and 2: a small Hessian makes a constant kernel.
"""

import math
from itertools import product

import numpy as np
import pytest
import torch
from gnbook.transition_to_linearity.linearity import liu_proposition_2_3
from gnbook.transition_to_linearity.tensor_norm import norm_221
from hypothesis import given
from hypothesis import strategies as st

from gnlib import GaussNewton
from tests.gnbook.transition_to_linearity.helpers import SLACK, SMOOTH, TINY, hess, hessian, module, networks, slopes
from tests.oracles import norm
from tests.strategies import exact, gaussian, instances, seeds


@st.composite
def shallow(draw, signs=True):
    m, seed = draw(st.integers(1, 8)), draw(seeds)
    w = gaussian(seed, m) * draw(st.sampled_from([0.0, 1.0, 5.0]))
    v = gaussian(seed + 1, m).sign() if signs else gaussian(seed + 1, m)
    return w, v, draw(st.sampled_from([-3.0, -1.0, 0.0, 0.2, 2.0])), draw(st.sampled_from(list(SMOOTH)))


def eq_8(w, v, x, sigma):
    return v @ sigma(w * x) / len(w) ** 0.5


@pytest.mark.claim("Liu Eq. 9", verdict="holds")
@pytest.mark.claim("Liu Eq. 10", verdict="holds if")
@pytest.mark.claim("Liu Eq. 13, corrected", verdict="holds")
@instances
@given(shallow())
def test_hessian_kernel_and_221_norm_of_one_hidden_layer(network):
    w, v, x, sigma = network
    first, second = slopes(sigma, w * x)
    h = hess(lambda w: eq_8(w, v, x, sigma))(w)
    assert torch.allclose(h, (v * second * x**2 / len(w) ** 0.5).diag(), atol=TINY)
    assert norm(h) <= SMOOTH[sigma].curvature * x**2 / len(w) ** 0.5 * SLACK + TINY
    g = torch.func.grad(lambda w: eq_8(w, v, x, sigma))(w)
    assert torch.isclose(g @ g, (x * first).square().mean(), atol=TINY)
    tensor = hess(lambda w: sigma(w * x))(w).movedim(0, 2)
    largest = second.abs().max().item() * x**2
    assert math.isclose(norm_221(tensor).upper, largest, rel_tol=1e-9, abs_tol=TINY)
    assert largest <= SMOOTH[sigma].curvature * x**2 * SLACK


@pytest.mark.claim("One hidden layer in the limit", verdict="holds")
@pytest.mark.parametrize("sigma", SMOOTH)
def test_the_hessian_times_the_root_of_the_width_tends_to_the_largest_curvature(sigma):
    x, errors = 1.7, []
    for m in (100, 10_000, 1_000_000):
        second = slopes(sigma, gaussian(0, m) * x)[1]
        errors.append(SMOOTH[sigma].curvature * x**2 - second.abs().max().item() * x**2)
    assert 0 <= errors[2] <= errors[1] <= errors[0] and errors[2] < 1e-6


@pytest.mark.claim("Liu Eq. 10", verdict="holds if")
def test_the_kernel_tends_to_an_expectation_that_is_zero_for_the_input_zero():
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    for x in (0.5, 2.0):
        limit = x**2 * (weights / weights.sum() * (1 - np.tanh(nodes * x) ** 2) ** 2).sum()
        kernel = x**2 * slopes(torch.tanh, gaussian(0, 400_000) * x)[0].square().mean().item()
        assert math.isclose(kernel, limit, rel_tol=0.01) and limit > 0
    assert (0.0 * slopes(torch.tanh, gaussian(0, 10) * 0.0)[0]).square().mean() == 0


@pytest.mark.claim("Liu Section 3.1, positive definite kernel", verdict="fails")
def test_an_odd_activation_makes_the_kernel_of_an_input_and_its_opposite_singular():
    w, v = gaussian(0, 50), gaussian(1, 50).sign()
    rows = torch.stack([torch.func.grad(lambda w, x=x: eq_8(w, v, x, torch.tanh))(w) for x in (1.0, -1.0)])
    values = torch.linalg.eigvalsh(rows @ rows.mT)
    assert values[0] < 1e-14 and values[1] > 0.1
    assert torch.trace(rows @ rows.mT) / 2 <= values[1] <= torch.trace(rows @ rows.mT)  # what is needed, and holds


@pytest.mark.claim("Liu Eq. 12", verdict="holds")
@pytest.mark.claim("Liu Eq. 14", verdict="holds if")
@instances
@given(shallow(signs=False))
def test_hessian_and_kernel_by_the_gradient_of_hidden_values(network):
    w, v, x, sigma = network
    tensor = hess(lambda w: sigma(w * x))(w).movedim(0, 2)
    b = v / len(w) ** 0.5
    h = hess(lambda w: eq_8(w, v, x, sigma))(w)
    assert torch.allclose(h, tensor @ b, atol=TINY)
    assert norm(h) <= norm_221(tensor).upper * b.abs().max() * SLACK + TINY
    first = (x * slopes(sigma, w * x)[0]).abs()
    kernel = torch.func.grad(lambda w: eq_8(w, v, x, sigma))(w).square().sum()
    assert torch.isclose(kernel, (first * b).square().sum(), atol=TINY)
    assert first.min() ** 2 * (b @ b) <= kernel * SLACK + TINY <= first.max() ** 2 * (b @ b) * SLACK**2 + 2 * TINY


@pytest.mark.claim("Liu Eq. 13", verdict="fails")
def test_the_second_derivative_is_not_the_first():
    w, x = exact([0.0]), 2.0
    tensor = hess(lambda w: torch.sigmoid(w * x))(w)
    printed = slopes(torch.sigmoid, w * x)[0] * x
    assert printed.item() == 0.5 and tensor.item() == 0.0  # and where the printed bound is too small:
    w, x = exact([-math.log(2 + 3**0.5) / 4]), 4.0  # the largest curvature of the sigmoid
    tensor = hess(lambda w: torch.sigmoid(w * x))(w)
    assert tensor.abs().item() > 1.5 * SMOOTH[torch.sigmoid].lipschitz * x


@pytest.mark.claim("Liu Eq. 14", verdict="holds if")
def test_the_kernel_is_not_of_the_order_of_the_norm_without_the_square():
    kernels = [(scale * exact([1.0])).square().sum() / scale for scale in (1e-3, 1e3)]  # f = scale * w
    assert kernels[1] / kernels[0] > 1e5


@pytest.mark.claim("Liu Eq. 15", verdict="holds")
@pytest.mark.parametrize("m", [1, 7, 10_000])
def test_the_two_norms_of_signs_and_of_a_gaussian_output_layer(m):
    b = gaussian(0, m).sign() / m**0.5
    assert torch.isclose(b.abs().max(), exact(m**-0.5)) and torch.isclose(b @ b, exact(1.0))
    if m == 10_000:  # the output layer of section 3.3
        assert gaussian(0, m).abs().max() > 3


@pytest.mark.claim("One hidden layer, exactly", verdict="holds")
@instances
@given(networks(most=1, skips=False))
def test_the_hessian_of_one_hidden_layer_splits_into_units(network):
    weights, x, sigma, _ = network
    first, second = slopes(sigma, weights[0] @ x / len(x) ** 0.5)
    size, m = (x.norm() / len(x) ** 0.5).item(), len(first)
    corner, side = (weights[1][0] * second).abs() * size**2, first.abs() * size
    by_units = (corner / 2 + torch.hypot(corner / 2, side)).max() / m**0.5
    assert math.isclose(norm(hessian(weights, x, sigma)), by_units, rel_tol=1e-9, abs_tol=TINY)


def least_way(start, label, largest):
    """The right side of Eq. 2: the error at the start over the largest gradient."""
    return abs(start - label) / largest


@pytest.mark.claim("Liu Eq. 2", verdict="holds if")
@instances
@given(seeds, st.integers(1, 6), st.sampled_from([-2.0, 0.3, 1.0]), st.sampled_from([1e-3, 1.0, 10.0]))
def test_the_way_to_a_solution_is_at_least_the_error_over_the_largest_gradient(seed, m, x, size):
    start, v = gaussian(seed, m), gaussian(seed + 1, m).sign()
    end = start + size * gaussian(seed + 2, m)
    before, after = (v @ torch.tanh(w * x) / m**0.5 for w in (start, end))
    assert torch.linalg.vector_norm(end - start) * SLACK >= least_way(before, after, abs(x))  # |x| bounds the gradient


@pytest.mark.claim("Liu Eq. 2", verdict="holds if")
@pytest.mark.parametrize("way", [0.0, 0.25, 1.0, -1.0])
def test_a_network_that_does_not_reach_its_label_need_not_move(way):
    start, end = 0.5, 0.5 + way  # f = w, whose gradient is one
    assert least_way(start, end, 1.0) == abs(way)  # with f(w*) as the label it is an equality
    assert least_way(start, end + math.copysign(1.0, way), 1.0) == abs(way) + 1  # a label beyond what is reached


@pytest.mark.claim("Liu Eq. 4", verdict="holds")
@instances
@given(seeds, st.sampled_from([0.1, 2.0, 50.0]), st.floats(-3, 3))
def test_scaling_a_model_is_scaling_its_label(seed, alpha, label):
    w = gaussian(seed, 3)

    def criterion(f, label):
        g, h = torch.func.grad(f)(w), hess(f)(w)
        return (f(w) - label).abs() * norm(h) / (g @ g)

    def f(w):
        return torch.tanh(w).sum() + w.prod()

    scaled = criterion(lambda w: alpha * f(w), label)
    assert torch.isclose(scaled, criterion(f, label / alpha), rtol=1e-10)


@pytest.mark.claim("Tangent kernel and Gauss-Newton", verdict="holds")
@instances
@given(networks(), st.integers(1, 4), seeds)
def test_the_tangent_kernel_is_the_gram_matrix_times_the_number_of_samples(network, n, seed):
    weights, x, sigma, skip = network
    x = gaussian(seed, n, len(x))
    net = module(weights, sigma, skip)
    rows = [torch.autograd.grad(net(x)[i, 0], list(net.parameters()), materialize_grads=True) for i in range(n)]
    jacobian = torch.stack([torch.cat([g.flatten() for g in row]) for row in rows])
    g = GaussNewton(net, x)
    kernel = g.tangent_kernel()
    assert torch.allclose(kernel, jacobian @ jacobian.mT, rtol=1e-10, atol=1e-10 * norm(jacobian) ** 2)
    assert torch.equal(kernel, n * g.gram())


@pytest.mark.claim("Liu Proposition 2.1", verdict="holds")
@pytest.mark.claim("Signed sums", verdict="holds")
@instances
@given(seeds, st.integers(1, 4), st.integers(1, 4), st.integers(1, 5))
def test_signed_sums_are_the_definition_and_the_least_constant_of_a_contraction(seed, d1, d2, d3):
    tensor, v = gaussian(seed, d1, d2, d3), gaussian(seed + 1, d3)
    bounds = norm_221(tensor)
    assert norm(tensor @ v) <= bounds.upper * v.abs().max() * SLACK
    signs = max(product((1.0, -1.0), repeat=d3), key=lambda s: norm(tensor @ exact(s)))
    u, s, vh = torch.linalg.svd(tensor @ exact(signs))
    assert math.isclose(s[0], bounds.upper, rel_tol=1e-10)
    attained = torch.einsum("ijk,i,j->k", tensor, u[:, 0], vh[0]).abs().sum()
    assert math.isclose(attained, bounds.lower, rel_tol=1e-10)
    x, z = (torch.nn.functional.normalize(gaussian(seed + i, 500, d)) for i, d in ((1, d1), (2, d2)))
    assert torch.einsum("ijk,ni,nj->nk", tensor, x, z).abs().sum(1).max() <= bounds.upper * SLACK


@pytest.mark.claim("Signed sums", verdict="holds")
@instances
@given(seeds, st.integers(1, 4), st.integers(1, 4), st.integers(13, 16), st.booleans(), st.sampled_from([1e-2, 1.0]))
def test_many_slices_are_bounded_from_both_sides_and_semi_definite_ones_exactly(seed, d1, d2, d3, definite, size):
    slices = size * gaussian(seed, d3, d1, d2)
    if definite:
        slices = slices @ slices.mT * gaussian(seed + 1, d3).sign()[:, None, None]
    norms = []
    for grams in (slices.mT @ slices, slices @ slices.mT):
        values, q = torch.linalg.eigh(grams)
        absolute = (q * values.clamp_min(0).sqrt()[:, None]) @ q.mT
        norms.append(torch.linalg.eigvalsh(absolute.sum(0))[-1].item())
    tensor = slices.movedim(0, 2)
    bounds = norm_221(tensor)
    signs = gaussian(seed + 2, 300, d3).sign()
    tried = max(norm(tensor @ s) for s in signs)
    assert math.isclose(bounds.upper, math.sqrt(norms[0] * norms[1]), rel_tol=1e-7)
    assert bounds.lower <= bounds.upper * SLACK and tried <= bounds.upper * SLACK
    if definite:
        assert math.isclose(bounds.lower, bounds.upper, rel_tol=1e-9)
    else:
        assert bounds.lower >= 0.9 * tried


@pytest.mark.claim("Signed sums", verdict="holds")
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_semi_definite_slices_that_a_search_from_random_signs_misses(sign):
    directions = [0] * 8 + [i for i in range(1, 21) for _ in range(2)]  # eight small slices beat any two large ones
    slices = torch.stack([(0.3 if i == 0 else sign) * torch.eye(21)[i].diag().double() for i in directions])
    bounds = norm_221(slices.movedim(0, 2))
    assert bounds.lower == pytest.approx(2.4, rel=1e-12) == bounds.upper


@pytest.mark.claim("Liu Proposition 2.2", verdict="holds")
@instances
@given(seeds, st.integers(1, 4), st.booleans())
def test_the_kernel_is_constant_exactly_for_affine_models(seed, p, affine):
    g, a = gaussian(seed, p), gaussian(seed + 1, p, p)

    def f(w):
        return g @ w + 1 + (0.0 if affine else (w @ a @ w) / 2 + torch.sin(w).sum())

    kernels = torch.stack([torch.func.grad(f)(w).square().sum() for w in 3 * gaussian(seed + 2, 20, p)])
    assert (kernels.max() - kernels.min() <= 1e-12 * kernels.max()) == affine


def constant_gradient(kind, p, slope):
    """A function that is not affine although its gradient has the same norm wherever it has one."""
    if kind == "cone":
        return lambda w: slope * torch.linalg.vector_norm(w)
    return lambda w: slope * torch.linalg.vector_norm(w[:2]) + 0.7 * w[2:].sum()


@pytest.mark.claim("Constant kernel in a ball", verdict="holds")
@instances
@given(seeds, st.integers(2, 4), st.sampled_from(["cone", "cylinder"]), st.sampled_from([0.1, 1.0, 5.0]))
def test_a_constant_kernel_in_a_ball_bounds_the_hessian_at_its_centre(seed, p, kind, slope):
    f = constant_gradient(kind, p, slope)
    centre = gaussian(seed, p)
    radius = torch.linalg.vector_norm(centre if kind == "cone" else centre[:2])  # as far as f is differentiable
    size = torch.linalg.vector_norm(torch.func.grad(f)(centre))
    near = [torch.func.grad(f)(centre + 0.9 * radius * d / d.norm()) for d in gaussian(seed + 1, 5, p)]
    assert all(torch.isclose(torch.linalg.vector_norm(g), size, rtol=1e-10) for g in near)
    curvature = norm(hess(f)(centre))
    assert 0 < curvature <= size / radius * (1 + 1e-8)
    if kind == "cone":
        assert math.isclose(curvature, size / radius, rel_tol=1e-8)


@pytest.mark.claim("Liu Proposition 2.3", verdict="holds if")
@instances
@given(st.floats(0, 100), st.floats(0.01, 10), st.floats(0.01, 10))
def test_a_parabola_attains_the_bound_so_no_constant_serves_all_gradients(g, epsilon, radius):
    moved = (g + epsilon * radius) ** 2 - g**2  # f = g w + epsilon w^2 / 2
    bound = liu_proposition_2_3(exact([g]), exact([epsilon]), radius).item()
    assert math.isclose(moved, bound, rel_tol=1e-6, abs_tol=1e-9)
    assert math.isclose(bound / (epsilon * radius), 2 * g + epsilon * radius, rel_tol=1e-9)

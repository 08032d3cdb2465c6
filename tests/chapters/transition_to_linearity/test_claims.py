"""Liu, Zhu and Belkin 2020, sections 1 to 3 and appendices A, C to G: small Hessians make constant kernels."""

import math
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from gnlib import gauss_newton_gram
from gnlib.chapters.shared.hessian import Hessian, hessian_ends, moved
from gnlib.chapters.transition_to_linearity.ball import SIGMOID, TANH, Start, ball_norms, likely_start, measured_start
from gnlib.chapters.transition_to_linearity.linearity import (
    LayerNorms,
    layer_norms,
    layered_bound,
    liu_proposition_2_3,
    liu_proposition_3_1,
    liu_theorem_3_1,
)
from gnlib.chapters.transition_to_linearity.tensor_norm import norm_221
from gnlib.chapters.transition_to_linearity.wide_network import WideNetwork, normal_weights
from gnlib.gauss_newton import tangent_kernel
from tests.strategies import exact, gaussian, hundreds, matrices, seeds

SMOOTH = {torch.tanh: TANH, torch.sigmoid: SIGMOID}
SLACK = 1 + 1e-9
TINY = 1e-12


def identity(z):
    return z


def norm(matrix):
    return torch.linalg.matrix_norm(matrix, 2).item()


def hess(f, argnums=0):
    """Second derivatives of a function, by two backward passes."""
    return torch.func.jacrev(torch.func.jacrev(f, argnums), argnums)


def slopes(sigma, z):
    """First and second derivative of an activation at each entry, by automatic differentiation."""
    z = z.clone().requires_grad_()
    (first,) = torch.autograd.grad(sigma(z).sum(), z, create_graph=True)
    second = torch.zeros_like(z)
    if first.requires_grad:
        (second,) = torch.autograd.grad(first.sum(), z, materialize_grads=True)
    return first.detach(), second


def values(weights, x, sigma, skip=False):
    """Input and hidden values of the networks of Eqs. 63 and 97, written out once more."""
    h = [x]
    for index, w in enumerate(weights[:-1]):
        new = sigma(w @ h[-1] / len(h[-1]) ** 0.5)
        h.append(new + h[-1] if skip and index else new)
    return h


def function(weights, x, sigma, skip=False):
    h = values(weights, x, sigma, skip)[-1]
    return (weights[-1] @ h)[0] / len(h) ** 0.5


def hessian(weights, x, sigma, skip=False, fixed=False):
    """The matrix of second derivatives, from torch.func alone; without the output layer if that is fixed."""
    free = weights[:-1] if fixed else weights
    sizes, shapes = [w.numel() for w in free], [w.shape for w in free]

    def of_vector(v):
        pieces = [piece.view(shape) for piece, shape in zip(v.split(sizes), shapes, strict=True)]
        return function([*pieces, weights[-1]] if fixed else pieces, x, sigma, skip)

    return hess(of_vector)(torch.cat([w.flatten() for w in free]))


def gradients(weights, x, sigma, skip=False):
    """Derivatives of the output by the hidden values of each layer."""
    h = [v.detach().requires_grad_() for v in values(weights, x, sigma, skip)[1:]]
    result = []
    for index in range(len(h)):
        upper = [weights[0], *weights[index + 1 :]]  # the first one is not used

        def rest(a, upper=upper, index=index):
            for w in upper[1:-1]:
                new = sigma(w @ a / len(a) ** 0.5)
                a = new + a if skip else new
            return (upper[-1] @ a)[0] / len(a) ** 0.5

        result.append(torch.func.grad(rest)(h[index].detach()))
    return result


def second_derivatives(w, a, sigma):
    """The three tensors of a layer, by automatic differentiation, with the output on the last axis."""

    def layer(a, w):
        return sigma(w @ a / len(a) ** 0.5)

    (aa, aw), (_, ww) = hess(layer, (0, 1))(a, w)
    m, p = len(w), w.numel()
    return [t.movedim(0, 2) for t in (aa, aw.reshape(m, len(a), p), ww.reshape(m, p, p))]


@st.composite
def networks(draw, most=3, skips=True, smallest=1):
    """Weights, a sample, an activation and whether there are skips; Gaussian, zero, huge or rank-deficient weights."""
    skip = draw(st.booleans()) if skips else False
    depth, d, width = draw(st.integers(1, most)), draw(st.integers(1, 3)), draw(st.integers(smallest, 4))
    hidden = [width] * depth if skip else [draw(st.integers(smallest, 4)) for _ in range(depth)]
    weights = [draw(matrices(out, fan_in)) for fan_in, out in pairwise([d, *hidden, 1])]
    x = draw(matrices(1, d))[0] * draw(st.sampled_from([0.1, 1.0, 3.0]))
    return weights, x, draw(st.sampled_from(list(SMOOTH))), skip


def module(weights, sigma, skip=False):
    return WideNetwork(weights, activation=sigma, skip=skip)


def draws(widths, seed, **options):
    return normal_weights(widths, generator=torch.Generator().manual_seed(seed), **options)


# ---------------------------------------------------------------------------------------------------- sections 1 and 2


def least_way(start, label, largest):
    """The right side of Eq. 2: the error at the start over the largest gradient."""
    return abs(start - label) / largest


@pytest.mark.claim("Liu Eq. 2", verdict="holds if")
@hundreds
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
@hundreds
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
@hundreds
@given(networks(), st.integers(1, 4), seeds)
def test_the_tangent_kernel_is_the_gram_matrix_times_the_number_of_samples(network, n, seed):
    weights, x, sigma, skip = network
    x = gaussian(seed, n, len(x))
    net = module(weights, sigma, skip)
    rows = [torch.autograd.grad(net(x)[i, 0], list(net.parameters()), materialize_grads=True) for i in range(n)]
    jacobian = torch.stack([torch.cat([g.flatten() for g in row]) for row in rows])
    kernel = tangent_kernel(net, x)
    assert torch.allclose(kernel, jacobian @ jacobian.mT, rtol=1e-10, atol=1e-10 * norm(jacobian) ** 2)
    assert torch.equal(kernel, n * gauss_newton_gram(net, x))


@pytest.mark.claim("Liu Proposition 2.1", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 4), st.integers(1, 4), st.integers(1, 5))
def test_a_contraction_is_at_most_the_221_norm_times_the_largest_entry(seed, d1, d2, d3):
    tensor, v = gaussian(seed, d1, d2, d3), gaussian(seed + 1, d3)
    assert norm(tensor @ v) <= norm_221(tensor).upper * v.abs().max() * SLACK


@pytest.mark.claim("Signed sums", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 4), st.integers(1, 4), st.integers(1, 5))
def test_no_smaller_constant_will_do(seed, d1, d2, d3):
    tensor = gaussian(seed, d1, d2, d3)
    attained = max(norm(tensor @ exact(signs)) for signs in product((1.0, -1.0), repeat=d3))
    assert math.isclose(norm_221(tensor).upper, attained, rel_tol=1e-10)


@pytest.mark.claim("Signed sums", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 3), st.integers(1, 3), st.integers(1, 5))
def test_signed_sums_are_what_the_definition_says(seed, d1, d2, d3):
    tensor = gaussian(seed, d1, d2, d3)
    signs = max(product((1.0, -1.0), repeat=d3), key=lambda s: norm(tensor @ exact(s)))
    u, _, vh = torch.linalg.svd(tensor @ exact(signs))
    attained = torch.einsum("ijk,i,j->k", tensor, u[:, 0], vh[0]).abs().sum()
    assert math.isclose(attained, norm_221(tensor).lower, rel_tol=1e-10)
    x, z = gaussian(seed + 1, 500, d1), gaussian(seed + 2, 500, d2)
    x, z = x / x.norm(dim=1, keepdim=True), z / z.norm(dim=1, keepdim=True)
    assert torch.einsum("ijk,ni,nj->nk", tensor, x, z).abs().sum(1).max() <= norm_221(tensor).upper * SLACK


@pytest.mark.claim("Signed sums", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 4), st.integers(13, 16), st.booleans())
def test_many_slices_are_bounded_from_both_sides_and_semi_definite_ones_exactly(seed, d, d3, definite):
    slices = gaussian(seed, d3, d, d)
    if definite:
        slices = slices @ slices.mT * gaussian(seed + 1, d3).sign()[:, None, None]
    tensor = slices.movedim(0, 2)
    bounds = norm_221(tensor)
    signs = gaussian(seed + 2, 300, d3).sign()
    tried = max(norm(tensor @ s) for s in signs)
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


@pytest.mark.claim("Signed sums", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 4), st.integers(1, 4), st.integers(13, 16))
def test_the_upper_bound_by_absolute_values_of_matrices(seed, d1, d2, d3):
    slices = gaussian(seed, d3, d1, d2)
    norms = []
    for grams in (slices.mT @ slices, slices @ slices.mT):
        values, q = torch.linalg.eigh(grams)
        absolute = (q * values.clamp_min(0).sqrt()[:, None]) @ q.mT
        norms.append(torch.linalg.eigvalsh(absolute.sum(0))[-1].item())
    assert math.isclose(norm_221(slices.movedim(0, 2)).upper, math.sqrt(norms[0] * norms[1]), rel_tol=1e-7)


@pytest.mark.claim("Liu Proposition 2.2", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 4), st.booleans())
def test_the_kernel_is_constant_exactly_for_affine_models(seed, p, affine):
    g, a = gaussian(seed, p), gaussian(seed + 1, p, p)

    def f(w):
        return g @ w + 1 + (0.0 if affine else (w @ a @ w) / 2 + torch.sin(w).sum())

    kernels = torch.stack([torch.func.grad(f)(w).square().sum() for w in 3 * gaussian(seed + 2, 20, p)])
    assert (kernels.max() - kernels.min() <= 1e-12 * kernels.max()) == affine


@pytest.mark.claim("Liu Proposition 2.2", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 4), st.sampled_from([0.1, 0.9, 1.0, 1.1, 7.0]), st.sampled_from([-3.0, 0.01, 1.0]))
def test_a_step_of_the_printed_proof_needs_gradients_of_norm_one(seed, p, c, t):
    g, start, other = gaussian(seed, p), gaussian(seed + 1, p), gaussian(seed + 2, p)
    g = c * g / g.norm()

    def f(w):
        return g @ w + 1

    along = torch.func.grad(f)(start)
    level = start + other - along * (along @ other) / c**2  # f(v) = f(w_0)
    gain = (f(start + t * along) - f(start)).abs()
    assert math.isclose(gain, c**2 * abs(t), rel_tol=1e-9)
    for v in (start, level):
        distance = (v - start - t * along).norm()
        assert gain <= c * distance * SLACK  # in print without the c: the gain is at most the distance
    assert (gain <= (t * along).norm() * SLACK) == (c <= 1)


def constant_gradient(kind, p, slope):
    """A function that is not affine although its gradient has the same norm wherever it has one."""
    if kind == "cone":
        return lambda w: slope * torch.linalg.vector_norm(w)
    return lambda w: slope * torch.linalg.vector_norm(w[:2]) + 0.7 * w[2:].sum()


@pytest.mark.claim("Constant kernel in a ball", verdict="holds")
@hundreds
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
@hundreds
@given(seeds, st.integers(1, 4), st.integers(1, 3), st.sampled_from([0.0, 0.1, 3.0]))
def test_the_kernel_moves_no_further_than_gradients_and_hessians_allow(seed, p, n, radius):
    g, a = gaussian(seed, n, p), gaussian(seed + 1, n, p, p)
    a = a + a.mT
    step = gaussian(seed + 2, p)
    step = radius * step / step.norm()
    after = g + a @ step
    bound = liu_proposition_2_3(g.norm(dim=1), torch.linalg.matrix_norm(a, 2), radius)
    assert ((after @ after.mT - g @ g.mT).abs() <= bound * SLACK + TINY).all()


@pytest.mark.claim("Liu Proposition 2.3", verdict="holds if")
@hundreds
@given(st.floats(0, 100), st.floats(0.01, 10), st.floats(0.01, 10))
def test_a_parabola_attains_the_bound_so_no_constant_serves_all_gradients(g, epsilon, radius):
    moved = (g + epsilon * radius) ** 2 - g**2  # f = g w + epsilon w^2 / 2
    bound = liu_proposition_2_3(exact([g]), exact([epsilon]), radius).item()
    assert math.isclose(moved, bound, rel_tol=1e-6, abs_tol=1e-9)
    assert math.isclose(bound / (epsilon * radius), 2 * g + epsilon * radius, rel_tol=1e-9)


@pytest.mark.claim("Liu Proposition 2.3", verdict="holds if")
@hundreds
@given(networks(), seeds, st.sampled_from([0.1, 1.0]))
def test_the_kernel_of_a_network_moves_no_further_than_its_certificate_allows(network, seed, radius):
    weights, x, sigma, skip = network
    net = module(weights, sigma, skip)
    norms = ball_norms(measured_start(net, x[None]), SMOOTH[sigma], radius, skip=skip)
    epsilon = exact([layered_bound(norms, len(weights[-2]))])
    before = tangent_kernel(net, x[None])
    step = gaussian(seed, sum(p.numel() for p in net.parameters()))
    with moved(net, radius * step / step.norm()):
        change = (tangent_kernel(net, x[None]) - before).abs()
    assert (change <= liu_proposition_2_3(before[0].sqrt(), epsilon, radius) * SLACK + TINY).all()


# ------------------------------------------------------------------------------------------------------- section 3.1


@st.composite
def shallow(draw, signs=True):
    m, seed = draw(st.integers(1, 8)), draw(seeds)
    w = gaussian(seed, m) * draw(st.sampled_from([0.0, 1.0, 5.0]))
    v = gaussian(seed + 1, m).sign() if signs else gaussian(seed + 1, m)
    return w, v, draw(st.sampled_from([-3.0, -1.0, 0.0, 0.2, 2.0])), draw(st.sampled_from(list(SMOOTH)))


def eq_8(w, v, x, sigma):
    return v @ sigma(w * x) / len(w) ** 0.5


@pytest.mark.claim("Liu Eq. 9", verdict="holds")
@hundreds
@given(shallow())
def test_the_hessian_of_one_hidden_layer_is_diagonal_and_small(network):
    w, v, x, sigma = network
    h = hess(lambda w: eq_8(w, v, x, sigma))(w)
    by_formula = v * slopes(sigma, w * x)[1] * x**2 / len(w) ** 0.5
    assert torch.allclose(h, by_formula.diag(), atol=TINY)
    assert norm(h) <= SMOOTH[sigma].curvature * x**2 / len(w) ** 0.5 * SLACK + TINY


@pytest.mark.claim("One hidden layer in the limit", verdict="holds")
@pytest.mark.parametrize("sigma", SMOOTH)
def test_the_hessian_times_the_root_of_the_width_tends_to_the_largest_curvature(sigma):
    x, errors = 1.7, []
    for m in (100, 10_000, 1_000_000):
        second = slopes(sigma, gaussian(0, m) * x)[1]
        errors.append(SMOOTH[sigma].curvature * x**2 - second.abs().max().item() * x**2)
    assert 0 <= errors[2] <= errors[1] <= errors[0] and errors[2] < 1e-6


@pytest.mark.claim("Liu Eq. 10", verdict="holds if")
@hundreds
@given(shallow())
def test_the_kernel_of_one_hidden_layer_is_a_mean_over_units(network):
    w, v, x, sigma = network
    g = torch.func.grad(lambda w: eq_8(w, v, x, sigma))(w)
    mean = (x * slopes(sigma, w * x)[0]).square().mean()
    assert torch.isclose(g @ g, mean, atol=TINY)


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
@hundreds
@given(shallow(signs=False))
def test_the_hessian_is_a_contraction_with_the_gradient(network):
    w, v, x, sigma = network
    tensor = hess(lambda w: sigma(w * x))(w).movedim(0, 2)
    b = v / len(w) ** 0.5
    h = hess(lambda w: eq_8(w, v, x, sigma))(w)
    assert torch.allclose(h, tensor @ b, atol=TINY)
    assert norm(h) <= norm_221(tensor).upper * b.abs().max() * SLACK + TINY


@pytest.mark.claim("Liu Eq. 13", verdict="fails")
def test_the_second_derivative_is_not_the_first():
    w, x = exact([0.0]), 2.0
    tensor = hess(lambda w: torch.sigmoid(w * x))(w)
    printed = slopes(torch.sigmoid, w * x)[0] * x
    assert printed.item() == 0.5 and tensor.item() == 0.0  # and where the printed bound is too small:
    w, x = exact([-math.log(2 + 3**0.5) / 4]), 4.0  # the largest curvature of the sigmoid
    tensor = hess(lambda w: torch.sigmoid(w * x))(w)
    assert tensor.abs().item() > 1.5 * SIGMOID.lipschitz * x


@pytest.mark.claim("Liu Eq. 13, corrected", verdict="holds")
@hundreds
@given(shallow())
def test_the_221_norm_of_one_hidden_layer_is_its_largest_curvature(network):
    w, _, x, sigma = network
    tensor = hess(lambda w: sigma(w * x))(w).movedim(0, 2)
    largest = slopes(sigma, w * x)[1].abs().max().item() * x**2
    assert math.isclose(norm_221(tensor).upper, largest, rel_tol=1e-9, abs_tol=TINY)
    assert largest <= SMOOTH[sigma].curvature * x**2 * SLACK


@pytest.mark.claim("Liu Eq. 14", verdict="holds if")
@hundreds
@given(shallow(signs=False))
def test_the_kernel_lies_between_multiples_of_the_squared_gradient_by_hidden_values(network):
    w, v, x, sigma = network
    first = (x * slopes(sigma, w * x)[0]).abs()
    b = v / len(w) ** 0.5
    kernel = torch.func.grad(lambda w: eq_8(w, v, x, sigma))(w).square().sum()
    assert torch.isclose(kernel, (first * b).square().sum(), atol=TINY)
    assert first.min() ** 2 * (b @ b) <= kernel * SLACK + TINY <= first.max() ** 2 * (b @ b) * SLACK**2 + 2 * TINY


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


# ------------------------------------------------------------------------------------------------ sections 3.2 and 3.3


@pytest.mark.claim("Liu Proposition 3.1", verdict="holds if")
@hundreds
@given(networks(most=2))
def test_two_hidden_layers_with_a_fixed_output_layer(network):
    weights, x, sigma, skip = network
    assume(len(weights) == 3)
    layers = layer_norms(module(weights, sigma, skip), x[None])
    assert norm(hessian(weights, x, sigma, skip, fixed=True)) <= liu_proposition_3_1(layers) * SLACK + TINY


@pytest.mark.claim("Liu Proposition 3.1", verdict="holds if")
def test_a_trained_output_layer_needs_a_term_of_its_own():
    weights = [exact([[1.0]]), exact([[1.0]]), exact([[0.0]])]
    layers = layer_norms(module(weights, torch.tanh), exact([[1.0]]))
    assert liu_proposition_3_1(layers) == 0 < norm(hessian(weights, exact([1.0]), torch.tanh))


@pytest.mark.claim("Liu Section 3.2, independence", verdict="fails")
def test_the_gradient_by_the_first_hidden_values_depends_on_the_first_weights():
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)

    def mean_square(w1):  # of v w2 tanh'(w2 tanh(w1)) over v and w2, given w1
        return (weights / weights.sum() * nodes**2 * (1 - np.tanh(nodes * np.tanh(w1)) ** 2) ** 2).sum()

    assert math.isclose(mean_square(0.0), 1.0, rel_tol=1e-9) and mean_square(2.0) < 0.5


def some_norms(seed, depth):
    """Norms of layers, drawn and not computed: six numbers of several orders each."""
    return [LayerNorms(*six) for six in gaussian(seed, depth, 6).exp().tolist()]


@pytest.mark.claim("Liu Proposition 3.1", verdict="holds if")
@hundreds
@given(seeds)
def test_the_four_terms_of_the_proposition(seed):
    one, two = some_norms(seed, 2)
    by_hand = one.by_weights**2 * two.input_input * two.gradient_max
    by_hand += 2 * one.by_weights * two.input_weights * two.gradient_max
    by_hand += two.weights_weights * two.gradient_max + one.weights_weights * one.gradient_max
    assert math.isclose(liu_proposition_3_1([one, two]), by_hand, rel_tol=1e-12)


@pytest.mark.claim("Liu Theorem 3.1, corrected", verdict="holds")
@hundreds
@given(networks())
def test_the_theorem_with_its_two_repairs(network):
    weights, x, sigma, skip = network
    layers, m = layer_norms(module(weights, sigma, skip), x[None]), len(weights[-2])
    assert norm(hessian(weights, x, sigma, skip)) <= liu_theorem_3_1(layers, m) * SLACK + TINY


@pytest.mark.claim("Liu Theorem 3.1, corrected", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 4), st.integers(1, 100))
def test_the_constants_of_the_theorem_and_all_layers_that_a_term_can_involve(seed, depth, width):
    layers = some_norms(seed, depth)
    count, everywhere = len(layers), range(len(layers))
    by_weights = [layer.by_weights for layer in layers]
    lipschitz = max([1.0, *by_weights, *(layer.by_input for layer in layers)])
    terms = [layer.weights_weights for layer in layers]
    terms += [by_weights[a] * layers[b].input_weights for a, b in product(everywhere, repeat=2) if a < b]
    for a, b, c in product(everywhere, repeat=3):
        if a <= b < c:
            terms.append(by_weights[a] * by_weights[b] * layers[c].input_input)
    first = count**3 * lipschitz ** (2 * count) + count**2 * lipschitz**count + count
    second = count * lipschitz**count * max(by_weights) / width**0.5
    by_hand = first * max(terms) * max(layer.gradient_max for layer in layers) + second
    assert math.isclose(liu_theorem_3_1(layers, width), by_hand, rel_tol=1e-12, abs_tol=TINY)


@pytest.mark.claim("Liu Theorem 3.1", verdict="fails")
def test_a_lipschitz_constant_below_one_breaks_it():
    def f(w):  # one layer, phi(w) = w / 2, so that L_phi = Q_L = 1/2, and v = 0
        return w[1] * w[0] / 2

    second_term = 1 * 0.5**1 * 0.5
    assert norm(hess(f)(exact([1.0, 0.0]))) == 0.5 > second_term


@pytest.mark.claim("Liu Theorem 3.1", verdict="fails")
@pytest.mark.parametrize("v", [10.0, 1e6])
def test_a_maximum_over_different_layers_misses_a_term(v):
    layers = [  # one unit each; phi_3 is the identity but for a weight that it adds
        lambda w, a: w + 0 * a,
        lambda w, a: torch.log(torch.cosh(a)) + w,
        lambda w, a: a + w,
    ]

    def f(w):
        a = exact(0.0)
        for layer, own in zip(layers, w, strict=False):
            a = layer(own, a)
        return w[3] * a

    zero, by_weights, second = exact(0.0), [], []
    for layer in layers:  # at w = 0 all hidden values are zero
        by_weights.append(torch.func.grad(layer)(zero, zero))
        (ww, wa), (_, aa) = hess(layer, (0, 1))(zero, zero)
        second.append((ww, wa, aa))
    terms = [second[0][0], by_weights[0] * second[1][1], by_weights[0] * by_weights[1] * second[2][2]]  # l = 1, 2, 3
    assert max(abs(t) for t in terms) == 0 and second[1][2] == 1
    lipschitz = 2**0.5  # of the second and third layer, by both arguments
    assert norm(hess(f)(exact([0.0, 0.0, 0.0, v]))) == v > 3 * lipschitz**3 * max(by_weights)  # C_2 Q_L, m = 1


@pytest.mark.claim("Layered bound", verdict="holds")
@hundreds
@given(networks())
def test_the_layered_bound_is_a_bound_and_never_above_theorem_3_1(network):
    weights, x, sigma, skip = network
    layers, m = layer_norms(module(weights, sigma, skip), x[None]), len(weights[-2])
    assert norm(hessian(weights, x, sigma, skip)) <= layered_bound(layers, m) * SLACK + TINY
    assert norm(hessian(weights, x, sigma, skip, fixed=True)) <= layered_bound(layers, None) * SLACK + TINY
    assert layered_bound(layers, m) <= liu_theorem_3_1(layers, m) * SLACK
    if len(layers) == 2:
        assert layered_bound(layers, None) <= liu_proposition_3_1(layers) * SLACK


@pytest.mark.claim("Layered bound", verdict="holds")
@hundreds
@given(*[st.floats(-3, 3)] * 3, st.sampled_from(list(SMOOTH)))
def test_the_layered_bound_is_attained_by_one_unit(w, v, x, sigma):
    weights, x = [exact([[w]]), exact([[v]])], exact([x])
    bound = layered_bound(layer_norms(module(weights, sigma), x[None]), 1)
    assert math.isclose(norm(hessian(weights, x, sigma)), bound, rel_tol=1e-9, abs_tol=TINY)


@pytest.mark.claim("Layered bound", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 4), st.integers(1, 100))
def test_the_layered_bound_by_the_eigenvalues_of_its_matrices(seed, depth, width):
    way, total = 0.0, 0.0
    layers = some_norms(seed, depth)
    for layer in layers:
        side = layer.input_weights * way
        matrix = exact([[layer.input_input * way**2, side], [side, layer.weights_weights]])
        total += layer.gradient_max * torch.linalg.eigvalsh(matrix)[1].item()
        way = ((layer.by_input * way) ** 2 + layer.by_weights**2) ** 0.5
    whole = torch.linalg.eigvalsh(exact([[total, way / width**0.5], [way / width**0.5, 0.0]]))[1].item()
    assert math.isclose(layered_bound(layers, None), total, rel_tol=1e-10)
    assert math.isclose(layered_bound(layers, width), whole, rel_tol=1e-10)


@pytest.mark.claim("Layered bound", verdict="holds")
def test_two_layers_of_one_unit_do_not_attain_it():
    weights, x = [exact([[0.7]]), exact([[0.9]]), exact([[2.0]])], exact([1.3])
    bound = layered_bound(layer_norms(module(weights, torch.tanh), x[None]), 1)
    assert math.isclose(bound / norm(hessian(weights, x, torch.tanh)), 1.2473, rel_tol=1e-4)


@pytest.mark.claim("Norms of a layer", verdict="holds")
@hundreds
@given(networks())
def test_the_221_norms_of_fully_connected_layers_are_eigenvalues(network):
    weights, x, sigma, skip = network
    h = values(weights, x, sigma, skip)
    b = gradients(weights, x, sigma, skip)
    for index, layer in enumerate(layer_norms(module(weights, sigma, skip), x[None])):
        tensors = second_derivatives(weights[index], h[index], sigma)
        by_hand = [norm_221(t).upper for t in tensors]
        ours = [layer.input_input, layer.input_weights, layer.weights_weights]
        for one, other in list(zip(ours, by_hand, strict=True))[2 * (index == 0) :]:
            assert math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)
        assert math.isclose(layer.gradient_max, b[index].abs().max(), rel_tol=1e-9, abs_tol=TINY)


@pytest.mark.claim("Liu Section 3.3, diagonal of the kernel", verdict="fails")
def test_the_output_layer_has_a_share_in_the_kernel():
    net = module([exact([[1.0]]), exact([[0.0]])], torch.tanh)
    kernel = tangent_kernel(net, exact([[1.0]])).item()
    assert math.isclose(kernel, math.tanh(1.0) ** 2, rel_tol=1e-12)  # the sum over the hidden layers is zero


@pytest.mark.claim("Liu Section 3.3, diagonal of the kernel, corrected", verdict="holds")
@hundreds
@given(networks())
def test_the_kernel_is_a_sum_over_hidden_layers_and_the_output_layer(network):
    weights, x, sigma, skip = network
    h, b = values(weights, x, sigma, skip), gradients(weights, x, sigma, skip)
    total = h[-1] @ h[-1] / len(h[-1])
    for w, a, g in zip(weights, h, b, strict=False):
        first = slopes(sigma, w @ a / len(a) ** 0.5)[0]
        total = total + (first * g).square().sum() * (a @ a) / len(a)
    assert torch.isclose(tangent_kernel(module(weights, sigma, skip), x[None])[0, 0], total, rtol=1e-9, atol=TINY)


@pytest.mark.claim("Liu Remark 3.2", verdict="holds")
@hundreds
@given(networks(), seeds)
def test_only_the_gradient_maximum_sees_the_output_layer(network, seed):
    weights, x, sigma, skip = network
    other = [*weights[:-1], gaussian(seed, *weights[-1].shape)]
    one, two = (layer_norms(module(w, sigma, skip), x[None]) for w in (weights, other))
    assert [layer[1:] for layer in one] == [layer[1:] for layer in two]


@pytest.mark.claim("Liu Remark 3.3", verdict="holds")
def test_the_variance_of_the_output_is_the_mean_square_of_the_last_hidden_values():
    for m in (10, 1000):
        weights = draws([3, m, 1], 0)
        h = values(weights, exact([1.0, -1.0, 0.5]), torch.tanh)[-1]
        outputs = gaussian(1, 20_000, m) @ h / m**0.5
        assert math.isclose(outputs.var().item(), (h @ h / m).item(), rel_tol=0.05)


def by_units(w, v, a):
    """Kernel and norm of the Hessian of v tanh(w a) / sqrt(m), where a is what the first weights are multiplied by."""
    first, second = slopes(torch.tanh, w * a)
    kernel = torch.tanh(w * a).square().mean() + (v * first * a).square().mean()
    corner, side = (v * second).abs() * a**2, (first * a).abs()
    return kernel.item(), ((corner / 2 + torch.hypot(corner / 2, side)).max() / len(w) ** 0.5).item()


@pytest.mark.claim("Liu Eq. 22", verdict="fails")
@hundreds
@given(seeds, st.integers(1, 6), st.sampled_from([0.0, 0.1, 1.0, -3.0]))
def test_kernel_and_hessian_of_one_hidden_layer_by_its_units(seed, m, x):
    w, v = gaussian(seed, 2, m)
    weights, sample = [w[:, None], v[None]], exact([x / m**0.5])  # Eq. 22 for one input
    kernel, hessian_norm = by_units(w, v, x / m**0.5)
    assert math.isclose(tangent_kernel(module(weights, torch.tanh), sample[None]), kernel, rel_tol=1e-9, abs_tol=TINY)
    assert math.isclose(norm(hessian(weights, sample, torch.tanh)), hessian_norm, rel_tol=1e-9, abs_tol=TINY)


@pytest.mark.claim("Liu Eq. 22", verdict="fails")
@pytest.mark.parametrize("size", [0.5, 1.0, 3.0])
def test_a_first_layer_divided_by_the_root_of_the_width_has_a_vanishing_kernel(size):
    for m, tolerance in ((10**4, 0.1), (10**6, 0.02)):
        w, v = gaussian(0, 2, m)
        kernel, hessian_norm = by_units(w, v, size / m**0.5)
        assert math.isclose(m * kernel, 2 * size**2, rel_tol=tolerance)
        assert math.isclose(hessian_norm / kernel, 1 / (2 * size), rel_tol=tolerance)


@pytest.mark.claim("Liu Eq. 22", verdict="fails")
def test_divided_by_the_root_of_the_inputs_the_kernel_stays_and_the_hessian_falls():
    kernels, norms = zip(*(by_units(*gaussian(0, 2, m), 1.0) for m in (10**2, 10**4, 10**6)), strict=True)
    assert max(kernels) < 1.3 * min(kernels)
    assert norms[2] < norms[1] / 5 < norms[0] / 25


@pytest.mark.claim("Liu Lemma 3.1", verdict="holds")
@pytest.mark.parametrize("sigma", SMOOTH)
def test_the_constants_of_two_activations_are_the_least(sigma):
    grid = torch.linspace(-5, 5, 100_001).double()
    first, second = slopes(sigma, grid)
    assert SMOOTH[sigma].at_zero == sigma(exact(0.0))
    assert math.isclose(SMOOTH[sigma].lipschitz, first.abs().max(), rel_tol=1e-8)
    assert math.isclose(SMOOTH[sigma].curvature, second.abs().max(), rel_tol=1e-8)


@pytest.mark.claim("Liu Lemma 3.1", verdict="holds")
@hundreds
@given(networks(), seeds, st.sampled_from([0.0, 0.1, 1.0, 10.0]))
def test_the_norms_of_all_layers_in_a_ball(network, seed, radius):
    weights, x, sigma, skip = network
    net = module(weights, sigma, skip)
    above = ball_norms(measured_start(net, x[None]), SMOOTH[sigma], radius, skip=skip)
    for step in gaussian(seed, 3, sum(p.numel() for p in net.parameters())):
        with moved(net, radius * step / step.norm()):
            for layer, bound in zip(layer_norms(net, x[None]), above, strict=True):
                assert all(a <= b * SLACK + 1e-9 for a, b in zip(layer, bound, strict=True))


def ball_by_hand(start, smoothness, radius, skip):
    """The recursions of Lemma 3.1 with layers counted from one, as the page of claims has them."""
    slope, bend, _ = smoothness
    m, depth = start.widths, len(start.weights)
    s, b, top = ({layer: given[layer - 1] for layer in range(1, depth + 1)} for given in (start[1], *start[3:]))
    a, e, way = {}, {}, {0: 0.0}
    for layer in range(1, depth + 1):
        a[layer - 1] = start.values[layer - 1] + way[layer - 1] / m[layer - 1] ** 0.5
        e[layer] = s[layer] * way[layer - 1] + radius * a[layer - 1]
        way[layer] = slope * e[layer] + (way[layer - 1] if skip and layer > 1 else 0.0)
    h = {depth: radius / m[depth] ** 0.5}
    for layer in range(depth, 1, -1):
        weights = radius / m[layer - 1] ** 0.5 * slope * (b[layer] + h[layer])
        h[layer - 1] = weights + s[layer] * (bend * top[layer] * e[layer] + slope * h[layer]) + skip * h[layer]
    result = []
    for layer in range(1, depth + 1):
        wide, below = s[layer] + radius / m[layer - 1] ** 0.5, a[layer - 1]
        with_input = [slope * wide + skip, bend * wide**2]
        with_input.append(bend * wide * below + slope * (m[layer] / m[layer - 1]) ** 0.5)
        by_input, aa, aw = with_input if layer > 1 else (0.0, 0.0, 0.0)
        result.append([top[layer] + h[layer], by_input, slope * below, aa, aw, bend * below**2])
    return exact(result)


@pytest.mark.claim("Liu Lemma 3.1", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 4), st.floats(0, 10), st.booleans(), st.sampled_from(list(SMOOTH)))
def test_the_recursions_of_the_norms_in_a_ball(seed, depth, radius, skip, sigma):
    numbers = gaussian(seed, 4, depth).exp().tolist()
    widths = (1 + 10 * gaussian(seed + 1, depth + 1).abs()).int().tolist()
    start = Start(widths, *numbers)
    norms = ball_norms(start, SMOOTH[sigma], radius, skip=skip)
    assert torch.allclose(exact(norms), ball_by_hand(start, SMOOTH[sigma], radius, skip), rtol=1e-10, atol=0)


@pytest.mark.claim("Liu Lemma 3.1", verdict="holds")
@pytest.mark.parametrize("sigma", SMOOTH)
@pytest.mark.parametrize("widths", [[3, 20, 50], [5, 12, 30, 20], [2, 40]])
@pytest.mark.parametrize("failure", [0.5, 1e-3])
def test_the_start_that_is_likely_by_hand(sigma, widths, failure):
    slope, _, at_zero = SMOOTH[sigma]
    likely, depth = likely_start(widths, 1.3, SMOOTH[sigma], failure=failure), len(widths) - 1
    share = failure / (2 * depth + 1)  # L norms of weights, L + 1 of the output layer: its norm, and L maxima
    t = math.sqrt(-2 * math.log(share))
    value, above = 1.3, 1.0
    for layer in range(depth):
        n, m = widths[layer : layer + 2]
        weight = 1 + (m**0.5 + t) / n**0.5
        assert math.isclose(likely.weights[layer], weight, rel_tol=1e-12)
        assert math.isclose(likely.values[layer], value, rel_tol=1e-12)
        value = slope * weight * value * (n / m) ** 0.5 + at_zero
    for layer in reversed(range(depth)):
        m, last = widths[layer + 1], widths[-1]
        assert math.isclose(likely.gradients[layer], above * (last**0.5 + t) / last**0.5, rel_tol=1e-12)
        assert math.isclose(likely.maxima[layer], above * math.sqrt(2 * math.log(2 * m / share) / last), rel_tol=1e-12)
        above *= slope * likely.weights[layer]


@pytest.mark.claim("Liu Lemma 3.1", verdict="holds")
@pytest.mark.parametrize("sigma", SMOOTH)
@pytest.mark.parametrize("widths", [[3, 20, 20], [5, 12, 30, 20], [2, 40]])
def test_the_start_that_is_likely_at_initialisation(sigma, widths):
    x = gaussian(7, widths[0])
    likely = likely_start(widths, (x.norm() / widths[0] ** 0.5).item(), SMOOTH[sigma], failure=0.01)
    for seed in range(20):  # the bounds leave so much room that one failure in a hundred draws never shows
        start = measured_start(module(draws([*widths, 1], seed), sigma), x[None])
        for found, bound in zip(start[1:], likely[1:], strict=True):
            assert all(a <= b for a, b in zip(found, bound, strict=True))


def certificate(widths, sigma=torch.tanh, radius=1.0):
    likely = likely_start(widths, 1.0, SMOOTH[sigma], failure=0.01)
    return layered_bound(ball_norms(likely, SMOOTH[sigma], radius), widths[-1])


@pytest.mark.claim("Liu Theorem 3.2", verdict="holds")
@pytest.mark.parametrize("sigma", SMOOTH)
@pytest.mark.parametrize("radius", [1.0, 10.0])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_hessian_in_a_ball_falls_like_the_root_of_log_width_over_width(sigma, radius, depth):
    widths = [10**4, 10**7, 10**10, 10**13, 10**16]
    scaled = [certificate([9] + [m] * depth, sigma, radius) * (m / math.log(m)) ** 0.5 for m in widths]
    assert all(b <= a for a, b in pairwise(scaled)) and scaled[-1] > 0.5 * scaled[-2]


@pytest.mark.claim("Liu Theorem 3.2", verdict="holds")
@hundreds
@given(networks(), seeds, st.sampled_from([0.1, 1.0, 10.0]))
def test_hessians_in_a_ball_are_below_the_certificate_of_its_centre(network, seed, radius):
    weights, x, sigma, skip = network
    net = module(weights, sigma, skip)
    above = layered_bound(ball_norms(measured_start(net, x[None]), SMOOTH[sigma], radius, skip=skip), len(weights[-2]))
    step = gaussian(seed, sum(p.numel() for p in net.parameters()))
    with moved(net, radius * step / step.norm()):
        moved_weights = [p.detach().clone() for p in (*net.hidden, net.last)]
        assert norm(hessian(moved_weights, x, sigma, skip)) <= above * SLACK + TINY


@pytest.mark.claim("The logarithm", verdict="holds")
@hundreds
@given(networks(smallest=2))
def test_the_largest_output_weight_is_a_lower_bound(network):
    weights, x, sigma, skip = network
    a = values(weights, x, sigma, skip)[-2]
    second = slopes(sigma, weights[-2] @ a / len(a) ** 0.5)[1]
    lower = (weights[-1][0] * second).abs().max() * (a @ a) / len(a) / len(second) ** 0.5
    assert lower <= norm(hessian(weights, x, sigma, skip)) * SLACK + TINY


@pytest.mark.claim("The logarithm", verdict="holds")
def test_with_a_gaussian_output_layer_the_hessian_times_the_root_of_the_width_grows():
    scaled = []
    for m in (10**2, 10**4, 10**6):
        z, v = gaussian(0, m), gaussian(1, m)
        scaled.append((v * slopes(torch.tanh, z)[1]).abs().max().item())
    ratios = [s / math.log(m) ** 0.5 for s, m in zip(scaled, (10**2, 10**4, 10**6), strict=True)]
    assert scaled[0] < scaled[1] < scaled[2] and max(ratios) / min(ratios) < 1.5


@pytest.mark.claim("One hidden layer, exactly", verdict="holds")
@hundreds
@given(networks(most=1, skips=False))
def test_the_hessian_of_one_hidden_layer_splits_into_units(network):
    weights, x, sigma, _ = network
    first, second = slopes(sigma, weights[0] @ x / len(x) ** 0.5)
    size, m = (x.norm() / len(x) ** 0.5).item(), len(first)
    corner, side = (weights[1][0] * second).abs() * size**2, first.abs() * size
    by_units = (corner / 2 + torch.hypot(corner / 2, side)).max() / m**0.5
    assert math.isclose(norm(hessian(weights, x, sigma)), by_units, rel_tol=1e-9, abs_tol=TINY)


@pytest.mark.claim("Liu Theorem 3.3", verdict="open")
@pytest.mark.parametrize("ratios", [(1, 3), (5, 1), (1, 4, 2)])
def test_widths_in_fixed_proportions_fall_with_the_smallest(ratios):
    sizes = [10**4, 10**8, 10**12]
    scaled = [certificate([9, *(r * m for r in ratios)]) * (m / math.log(m)) ** 0.5 for m in sizes]
    assert scaled[0] >= scaled[1] >= scaled[2]


@pytest.mark.claim("Liu Theorem 3.3", verdict="open")
def test_beyond_all_proportions_the_proof_gives_nothing_but_the_hessian_stays_small():
    assert certificate([9, 100, 10**12]) > 100 * certificate([9, 100, 10**4])
    measured = []
    for upper in (16, 256, 4096):
        sample = gaussian(0, 1, 3)
        nets = [module(draws([3, 16, upper, 1], seed), torch.tanh) for seed in range(4)]
        measured.append(sum(hessian_ends(n.on_its_range(sample), sample, tolerance=1e-3).norm for n in nets) / 4)
    assert measured[2] < 1.2 * measured[0]


@pytest.mark.claim("Liu Theorem 3.3", verdict="open")
@pytest.mark.parametrize("kind", ["skip", "filters"])
def test_residual_and_convolutional_networks_too(kind):
    scaled = []
    for m in (8, 64):
        options = {"filter_size": (3, 3), "pixels": 9} if kind == "filters" else {}
        x = gaussian(0, 1, 2, 3, 3) if kind == "filters" else gaussian(0, 1, 4)
        norms = []
        for seed in range(4):
            weights = draws([x.shape[1], m, m, 1], seed, **options)
            net = WideNetwork(weights, filter_size=options.get("filter_size", (1, 1)), skip=kind == "skip")
            norms.append(hessian_ends(net.on_its_range(x), x, tolerance=1e-3).norm)
        scaled.append(sum(norms) / 4 * m**0.5)
    assert 0.5 < scaled[1] / scaled[0] < 2  # eight times as wide: 1/m would make it 0.35, a constant 2.8


@pytest.mark.claim("Liu Remark 3.5", verdict="holds if")
@pytest.mark.parametrize("seed", range(5))
def test_gradient_flow_is_no_longer_than_the_error_over_the_root_of_the_smallest_eigenvalue(seed):
    net = module(draws([3, 40, 1], seed), torch.tanh)
    x, y = gaussian(seed + 1, 3, 3), gaussian(seed + 2, 3, 1)
    way, least, first = 0.0, math.inf, (net(x) - y).norm().item()
    for step in range(400):
        residual = net(x) - y
        if step % 20 == 0:
            least = min(least, torch.linalg.eigvalsh(tangent_kernel(net, x))[0].item())
        grads = torch.autograd.grad(0.5 * residual.square().sum(), list(net.parameters()))
        way += 0.01 * torch.cat([g.flatten() for g in grads]).norm().item()
        with torch.no_grad():
            for p, g in zip(net.parameters(), grads, strict=True):
                p -= 0.01 * g
    assert 0 < way <= first / least**0.5 * 1.02  # steps are a little longer than the flow


@pytest.mark.claim("Liu Remark 3.5", verdict="holds if")
def test_a_singular_kernel_may_need_any_distance():
    length = [abs(math.atanh(y) - 0.0) for y in (0.9, 0.999999)]  # f = tanh(w), label y, from w = 0: error below 1
    assert length[1] > 4 * length[0] and length[1] > 1


@pytest.mark.claim("Range of the Hessian", verdict="holds")
@hundreds
@given(networks())
def test_the_hessian_on_its_range_has_the_same_non_zero_eigenvalues(network):
    weights, x, sigma, skip = network
    reduced = Hessian(module(weights, sigma, skip).on_its_range(x[None]), x[None]).dense()
    full = torch.linalg.eigvalsh(hessian(weights, x, sigma, skip))
    some_zeros = torch.linalg.eigvalsh(reduced)
    size = max(len(full), len(some_zeros))

    def nonzero_first(v):
        padded = torch.cat([v, v.new_zeros(size - len(v))])
        return padded.sort().values

    assert torch.allclose(nonzero_first(full), nonzero_first(some_zeros), atol=1e-9 * (1 + full.abs().max().item()))


# ------------------------------------------------------------------------------------------------ appendices E, F, G


@pytest.mark.claim("Liu Lemma E.1", verdict="holds")
@hundreds
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
@hundreds
@given(networks(skips=False))
def test_the_blocks_of_the_hessian(network):
    weights, x, sigma, _ = network
    h = hessian(weights, x, sigma, fixed=True)
    offsets = [0, *torch.tensor([w.numel() for w in weights[:-1]]).cumsum(0).tolist()]
    for (l1, l2), block in blocks_of_the_hessian(weights, x, sigma, printed=False).items():
        part = h[offsets[l1] : offsets[l1 + 1], offsets[l2] : offsets[l2 + 1]]
        assert torch.allclose(block, part, rtol=1e-8, atol=1e-9 * (1 + norm(h)))


@pytest.mark.claim("Liu Lemma F.1", verdict="holds")
@pytest.mark.parametrize(("m", "d"), [(2, 1), (4, 3), (8, 8), (16, 1)])
def test_gaussian_matrices_exceed_three_roots_of_their_width_rarely(m, d):
    shapes = [(m, d), (m, m), (1, m)]
    for shape in shapes:
        norms = torch.linalg.matrix_norm(gaussian(m + d, 3000, *shape), 2)
        share, allowed = (norms > 3 * m**0.5).double().mean().item(), 2 * math.exp(-m / 2)
        assert share <= allowed


@pytest.mark.claim("Liu Lemma F.2", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 5), st.integers(1, 5), st.floats(0, 10))
def test_a_step_changes_a_spectral_norm_by_no_more_than_its_length(seed, m, n, radius):
    w, step = gaussian(seed, m, n), gaussian(seed + 1, m, n)
    assert norm(w + radius * step / torch.linalg.matrix_norm(step)) <= norm(w) + radius + 1e-9


@pytest.mark.claim("Liu Lemma F.3", verdict="fails")
@pytest.mark.parametrize("m", [2, 100])
def test_values_at_the_input_zero_are_larger_than_printed(m):
    h = values([torch.ones(m, 1).double(), torch.ones(1, m).double()], exact([0.0]), torch.sigmoid)[1]
    assert math.isclose(h.norm(), m**0.5 / 2, rel_tol=1e-12) and h.norm() > 1 / 2


def value_bounds(c, m, size, constants, depth):
    """Lemma F.3 with the root of m that it lacks, for weights up to c times the root of m."""
    bounds = [size * constants.lipschitz * c * m**0.5 + m**0.5 * abs(constants.at_zero)]
    for _ in range(depth - 1):
        bounds.append(constants.lipschitz * c * bounds[-1] + m**0.5 * abs(constants.at_zero))
    return bounds


@pytest.mark.claim("Liu Lemma F.3, corrected", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 6), st.integers(1, 3), st.integers(1, 3), st.sampled_from(list(SMOOTH)))
def test_values_with_the_root_of_the_width(seed, m, d, depth, sigma):
    weights = [gaussian(seed + i, m, d if i == 0 else m) for i in range(depth)] + [gaussian(seed + 9, 1, m)]
    x = gaussian(seed + 10, d)
    c = max(norm(w) for w in weights) / m**0.5
    bounds = value_bounds(c, m, x.abs().max().item(), SMOOTH[sigma], depth)
    for h, bound in zip(values(weights, x, sigma)[1:], bounds, strict=True):
        assert h.norm() <= bound * SLACK


@pytest.mark.claim("Liu Eqs. 71 and 77, corrected", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 6), st.integers(1, 3), st.integers(2, 3), st.sampled_from(list(SMOOTH)))
def test_norms_by_the_weights_with_the_offset_of_the_layer_below(seed, m, d, depth, sigma):
    weights = [gaussian(seed + i, m, d if i == 0 else m) for i in range(depth)] + [gaussian(seed + 9, 1, m)]
    x = gaussian(seed + 10, d)
    c, constants = max(norm(w) for w in weights) / m**0.5, SMOOTH[sigma]
    below = value_bounds(c, m, x.abs().max().item(), constants, depth)
    for layer, bound in zip(layer_norms(module(weights, sigma), x[None])[1:], below, strict=False):
        assert layer.by_weights <= constants.lipschitz * bound / m**0.5 * SLACK
        assert layer.weights_weights <= constants.curvature * bound**2 / m * SLACK


@pytest.mark.claim("Liu Eqs. 71 and 77", verdict="fails")
def test_norms_by_the_weights_with_an_offset_at_the_input_zero():
    weights = [exact([[1.0]]), exact([[1.0]]), exact([[1.0]])]
    second = layer_norms(module(weights, torch.sigmoid), exact([[0.0]]))[1]
    assert second.by_weights > 0.1 and second.weights_weights > 0.01  # both are bounded by zero in print


@pytest.mark.claim("Liu Eqs. 69 to 75, but for 74", verdict="holds")
@hundreds
@given(networks(most=1, skips=False))
def test_first_and_pure_second_derivatives_of_a_layer(network):
    (w, _), a, sigma, _ = network
    fan_in = len(a)
    first, second = slopes(sigma, w @ a / fan_in**0.5)
    by_input, by_weights = torch.func.jacrev(lambda a, w: sigma(w @ a / fan_in**0.5), (0, 1))(a, w)
    aa, _, ww = second_derivatives(w, a, sigma)
    eye = torch.eye(len(w)).double()
    assert torch.allclose(by_input, first[:, None] * w / fan_in**0.5, atol=TINY)
    assert torch.allclose(by_weights, torch.einsum("i,k,ij->ijk", first, a, eye) / fan_in**0.5, atol=TINY)
    assert torch.allclose(aa, torch.einsum("i,ij,ik->jki", second, w, w) / fan_in, atol=1e-9 * (1 + aa.abs().max()))
    units = torch.einsum("ij,ik->ijk", eye, eye)
    by_formula = torch.einsum("i,ijk,a,b->jakbi", second, units, a, a) / fan_in
    assert torch.allclose(ww, by_formula.reshape(ww.shape), atol=1e-9 * (1 + ww.abs().max()))


@pytest.mark.claim("Liu Eq. 74", verdict="fails")
def test_the_mixed_derivative_of_a_linear_layer_is_not_zero():
    _, mixed, _ = second_derivatives(exact([[2.0]]), exact([3.0]), identity)
    assert mixed.item() == 1.0  # alpha = w a; in print sigma'' w a = 0


@pytest.mark.claim("Liu Eq. 74, corrected", verdict="holds")
@hundreds
@given(networks(most=1, skips=False))
def test_the_mixed_derivative_has_a_second_term(network):
    (w, _), a, sigma, _ = network
    fan_in = len(a)
    first, second = slopes(sigma, w @ a / fan_in**0.5)
    _, mixed, _ = second_derivatives(w, a, sigma)
    eye = torch.eye(len(w)).double()
    printed = torch.einsum("i,ij,b,ik->jkbi", second, w, a, eye) / fan_in
    missing = torch.einsum("i,ik,jb->jkbi", first, eye, torch.eye(fan_in).double()) / fan_in**0.5
    assert torch.allclose(mixed, (printed + missing).reshape(mixed.shape), atol=1e-9 * (1 + mixed.abs().max()))
    upper = (second.abs().max() * norm(w) ** 2 * (a @ a)).item() ** 0.5 * second.abs().max().item() ** 0.5 / fan_in
    assert norm_221(mixed).upper <= (upper + first.norm().item() / fan_in**0.5) * SLACK + TINY


@pytest.mark.claim("Liu Eqs. 76 and 78", verdict="holds")
@hundreds
@given(networks(most=1, skips=False))
def test_the_pure_221_norms(network):
    (w, _), a, sigma, _ = network
    aa, _, ww = second_derivatives(w, a, sigma)
    bend = SMOOTH[sigma].curvature
    assert norm_221(aa).upper <= bend * norm(w) ** 2 / len(a) * SLACK + TINY
    assert norm_221(ww).upper <= bend * (a @ a) / len(a) * SLACK + TINY <= bend * a.abs().max() ** 2 * SLACK + 2 * TINY


@pytest.mark.claim("Liu Lemma F.4", verdict="holds")
@pytest.mark.parametrize("m", [4, 20, 100])
def test_hidden_values_beyond_the_logarithm_are_rare(m):
    below = gaussian(0, m)
    exponent = m / (2 * (below @ below).item())
    alpha = gaussian(1, 20_000, m) @ below / m**0.5  # the identity is the steepest 1-Lipschitz activation
    share = (alpha.abs() >= math.log(m)).double().mean().item()
    assert share <= 2 * math.exp(-exponent * math.log(m) ** 2)


@pytest.mark.claim("Liu Lemma F.5", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 6), st.integers(1, 3), st.sampled_from(list(SMOOTH)))
def test_gradients_by_hidden_values_have_bounded_norm(seed, m, depth, sigma):
    weights = [gaussian(seed + i, m, m) for i in range(depth)] + [gaussian(seed + 9, 1, m)]
    c, slope = max(norm(w) for w in weights) / m**0.5, SMOOTH[sigma].lipschitz
    for index, b in enumerate(gradients(weights, gaussian(seed + 10, m), sigma), 1):
        assert b.norm() <= slope ** (depth - index) * c ** (depth - index + 1) * SLACK


@pytest.mark.claim("Liu Lemma F.6", verdict="holds")
@pytest.mark.parametrize("sigma", SMOOTH)
def test_gradients_by_hidden_values_have_small_entries(sigma):
    scaled = []
    for m in (30, 300):
        weights = draws([3, m, m, m, 1], m)
        largest = max(b.abs().max().item() for b in gradients(weights, exact([1.0, -1.0, 0.5]), sigma))
        scaled.append(largest * m**0.5 / math.log(m))
    assert scaled[1] < 1.5 * scaled[0]


@pytest.mark.claim("Liu Lemma F.6", verdict="holds")
def test_the_printed_proof_takes_dependent_variables_for_independent():
    weights = draws([2, 3, 3, 3, 1], 0)
    other = [*weights[:1], weights[1] + 1, *weights[2:]]
    b, moved_b = (gradients(w, exact([1.0, -1.0]), torch.tanh)[1] for w in (weights, other))
    assert (b - moved_b).abs().max() > 0.01  # b^(2) depends on W^(2), with which it is multiplied


@pytest.mark.claim("A Gaussian output layer", verdict="holds")
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("failure", [0.1, 0.01])
def test_the_share_of_large_gradients_over_draws_of_the_output_layer(skip, failure):
    m = 6
    *hidden, _ = draws([3, m, m, m, 1], 5)
    x = exact([1.0, -1.0, 0.5])
    columns = [gradients([*hidden, row[None]], x, torch.tanh, skip)[0] for row in torch.eye(m).double()]
    jacobian = torch.stack(columns) * m**0.5  # d alpha^(L) / d alpha^(1)
    largest = (gaussian(6, 20_000, m) @ jacobian / m**0.5).abs().amax(1)
    bound = norm(jacobian) * (2 * math.log(2 * m / failure) / m) ** 0.5
    assert (largest > bound).double().mean() <= failure
    assert (largest > bound / 3).double().mean() > failure  # a third of it would be no bound


@pytest.mark.claim("Liu Eqs. 79 and 103", verdict="holds")
@hundreds
@given(networks())
def test_the_gradient_by_hidden_values_is_a_product(network):
    weights, x, sigma, skip = network
    h = values(weights, x, sigma, skip)
    b = weights[-1][0] / len(h[-1]) ** 0.5
    for index in range(len(weights) - 2, -1, -1):
        assert torch.allclose(b, gradients(weights, x, sigma, skip)[index], rtol=1e-9, atol=TINY)
        first = slopes(sigma, weights[index] @ h[index] / len(h[index]) ** 0.5)[0]
        below = weights[index].mT @ (first * b) / len(h[index]) ** 0.5
        b = below + b if skip and index else below


@pytest.mark.claim("Liu Eq. 82", verdict="holds")
@pytest.mark.parametrize("radius", [1.0, 5.0])
def test_gradients_by_hidden_values_move_little_in_a_ball(radius):
    moved_by = []
    for m in (10**4, 10**8, 10**12):
        start = likely_start([9, m, m, m], 1.0, TANH, failure=0.01)
        layers = ball_norms(start, TANH, radius)
        largest = max(layer.gradient_max - maximum for layer, maximum in zip(layers, start.maxima, strict=True))
        moved_by.append(largest * (m / math.log(m)) ** 0.5)
    assert moved_by[0] >= moved_by[1] >= moved_by[2]


@pytest.mark.claim("Liu Eq. 85, first layer", verdict="fails")
def test_the_first_preactivations_move_further_than_printed():
    d, size, radius = 4, 1.0, 1.0
    x = torch.ones(d).double()
    step = torch.cat([x[None] / x.norm(), torch.zeros(2, d).double()])  # of norm one
    way = (radius * step @ x / d**0.5).norm().item()
    assert way > radius / d**0.5 * size and math.isclose(way, radius * size, rel_tol=1e-12)


@pytest.mark.claim("Liu Lemma G.1", verdict="holds")
@hundreds
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
@hundreds
@given(convolutions())
def test_values_of_a_convolution(layer):
    w, a, sigma = layer
    m, q = a.shape
    total = sum(norm(filters) for filters in w) / m**0.5
    bound = SMOOTH[sigma].lipschitz * total * torch.linalg.matrix_norm(a) + (m * q) ** 0.5 * SMOOTH[sigma].at_zero
    assert torch.linalg.matrix_norm(convolution(w, a, sigma)) <= bound * SLACK


@pytest.mark.claim("Liu Appendix G.1, norms of a convolution, corrected", verdict="holds")
@hundreds
@given(convolutions())
def test_norms_of_a_convolution_with_the_term_that_the_mixed_one_lacks(layer):
    w, a, sigma = layer
    (count, m, _), q = w.shape, a.shape[1]
    outputs, slope, bend = m * q, SMOOTH[sigma].lipschitz, SMOOTH[sigma].curvature
    by_input, by_weights = (
        j.reshape(outputs, -1) for j in torch.func.jacrev(lambda a, w: convolution(w, a, sigma), (0, 1))(a, w)
    )
    total, size = sum(norm(f) for f in w) / m**0.5, count * torch.linalg.matrix_norm(a) / m**0.5
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
@hundreds
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


# --------------------------------------------------------------------------------------------------------- appendix A


@pytest.mark.claim("Liu Eqs. 36 to 38", verdict="holds if")
@hundreds
@given(networks(), st.sampled_from([0.1, 0.5, 3.0]))
def test_one_factor_for_all_layers_rescales_kernel_and_hessian_alike(network, scale):
    weights, x, sigma, skip = network
    sizes, shapes = [w.numel() for w in weights], [w.shape for w in weights]

    def rescaled(v):
        pieces = [p.view(s) / scale for p, s in zip(v.split(sizes), shapes, strict=True)]
        return function(pieces, x, sigma, skip)

    v = torch.cat([scale * w.flatten() for w in weights])
    g, h = torch.func.grad(rescaled)(v), hess(rescaled)(v)
    kernel = tangent_kernel(module(weights, sigma, skip), x[None])[0, 0]
    assert torch.isclose(g @ g, kernel / scale**2, rtol=1e-9, atol=TINY / scale**2)
    whole = hessian(weights, x, sigma, skip)
    assert torch.allclose(h, whole / scale**2, rtol=1e-8, atol=1e-10 * (1 + norm(whole)) / scale**2)


@pytest.mark.claim("Liu Eqs. 36 to 38", verdict="holds if")
def test_a_factor_for_each_layer_changes_the_ratio():
    def ratio(scale):  # f = v tanh(w / scale) at v = w = 1 in units of the original
        def f(p):
            return p[1] * torch.tanh(p[0] / scale)

        p = exact([scale, 1.0])
        g = torch.func.grad(f)(p)
        return (norm(hess(f)(p)) / (g @ g)).item()

    assert abs(ratio(0.1) / ratio(1.0) - 1) > 0.1


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

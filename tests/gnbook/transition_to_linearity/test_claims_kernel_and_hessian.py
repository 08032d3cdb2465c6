"""Liu, Zhu and Belkin 2020, sections 1 and 2: a small Hessian makes a constant kernel."""

import math
from itertools import product

import pytest
import torch
from gnbook.transition_to_linearity.linearity import liu_proposition_2_3
from gnbook.transition_to_linearity.tensor_norm import norm_221
from hypothesis import given
from hypothesis import strategies as st

from gnlib import GaussNewton
from tests.gnbook.transition_to_linearity.helpers import SLACK, hess, module, networks, norm
from tests.strategies import exact, gaussian, instances, seeds


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

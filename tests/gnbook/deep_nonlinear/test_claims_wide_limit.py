"""Infinitely wide networks: their kernel, deviations of finite ones from it, and its limit in depth."""

import math

import pytest
import scipy
import torch
from gnbook.deep_nonlinear.duals import centred, hermite_coefficients, leaky_relu, smooth
from gnbook.deep_nonlinear.networks import ACTIVATIONS, limit_kernel
from gnbook.deep_nonlinear.wide_limit import deep_relu_condition, standard_factors, wide_kernel
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from tests.gnbook.deep_nonlinear.wide_helpers import (
    KAIMING,
    NETWORKS,
    erf,
    exact_pair,
    finite_kernel,
    finite_weights,
    kappa,
    on_a_circle,
    on_a_grid,
    on_a_sphere,
)
from tests.oracles import relative
from tests.strategies import exact, gaussian, instances, seeds

COSINES = (-1.0, -0.999, -0.3, 0.0, 0.5, 0.99, 0.999999, 1.0)
SIZES = ((1.0, 1.0), (0.01, 2.0))
SLACK = 1 + 1e-9


def slope_of(activation):
    return lambda z: torch.func.vmap(torch.func.grad(activation))(z.flatten()).view_as(z)


def covariance(sizes, cosine):
    root = (sizes[0] * sizes[1]) ** 0.5
    return exact([[sizes[0], root * cosine], [root * cosine, sizes[1]]])


def exponent(pairs):
    """The slope of a straight line through the logarithms."""
    x, y = (exact(values).log() for values in zip(*pairs, strict=True))
    x = x - x.mean()
    return (x @ y / (x @ x)).item()


def deviation(name, depth, width, networks, branch=None):
    """Root mean square of the relative deviation of finite networks from the kernel of infinite width."""
    activation, dual, gain = NETWORKS[name]
    x, widths = gaussian(0, 6, 10), [10, *[width] * (depth - 1), 1]
    limit = wide_kernel(x, dual, standard_factors(widths, gain), gain=gain, branch=branch)
    found = [finite_kernel(finite_weights(widths, gain, seed), x, activation, branch) for seed in range(networks)]
    return exact([relative(kernel, limit) ** 2 for kernel in found]).mean().item() ** 0.5


@pytest.mark.claim("Expectations on a Gaussian pair", verdict="holds")
@pytest.mark.parametrize("slope", [0.0, 0.3, -1.0])
def test_the_dual_of_leaky_relus_is_an_integral_over_the_angle(slope):
    for cosine in COSINES:
        both, slopes = leaky_relu(slope)(covariance((0.5, 3.0), cosine))
        theta = math.acos(cosine)
        first = on_a_circle(lambda z: z if z > 0 else slope * z, lambda z: z if z > 0 else slope * z, theta, 2)
        second = on_a_circle(lambda z: 1.0 if z > 0 else slope, lambda z: 1.0 if z > 0 else slope, theta, 0)
        assert both[0, 1].item() == pytest.approx(1.5**0.5 * first, abs=1e-8 * (1 + slope**2))
        assert slopes[0, 1].item() == pytest.approx(second, abs=1e-8 * (1 + slope**2))


@pytest.mark.claim("Expectations on a Gaussian pair", verdict="holds")
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("activation", [torch.erf, torch.tanh, functional.gelu, torch.sin])
def test_the_dual_of_smooth_activations_is_an_integral_over_the_plane(activation, sizes):
    dual = erf if activation is torch.erf else smooth(activation)
    for cosine in COSINES:
        both, slopes = dual(covariance(sizes, cosine))
        derivative = slope_of(activation)
        assert both[0, 1].item() == pytest.approx(on_a_grid(activation, activation, sizes, cosine), abs=1e-11)
        assert slopes[0, 1].item() == pytest.approx(on_a_grid(derivative, derivative, sizes, cosine), abs=1e-9)


@pytest.mark.claim("The kernel of wide networks", verdict="holds")
@pytest.mark.parametrize("name", NETWORKS)
def test_each_layer_tends_to_its_own_term(name):
    activation, dual, gain = NETWORKS[name]
    x, widths, factors = gaussian(1, 5, 8), [8, 400, 400, 1], [[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]]
    standard = standard_factors(widths, gain)
    for index, factor in enumerate(factors):
        limit = wide_kernel(x, dual, [f * c for f, c in zip(factor, standard, strict=True)], gain=gain)
        found = [finite_kernel(finite_weights(widths, gain, s), x, activation, factors=factor) for s in range(6)]
        mean = sum(found) / 6
        assert relative(mean, limit) < 0.2, index


@pytest.mark.claim("One hidden layer, mean and variance", verdict="holds")
@pytest.mark.parametrize("name", NETWORKS)
def test_the_mean_is_the_limit_and_the_variance_falls_like_the_width(name):
    activation, dual, gain = NETWORKS[name]
    x, units = gaussian(2, 4, 3), 400_000
    limit = wide_kernel(x, dual, [1.0, 1.0], gain=gain)
    z = (gain / 3**0.5 * gaussian(3, units, 3) @ x.mT).requires_grad_()
    h = activation(z)
    (slopes,) = torch.autograd.grad(h.sum(), z)
    h, output = h.detach(), gaussian(4, units).square()
    each = gain**2 * (
        h[:, :, None] * h[:, None]
        + gain**2 / 3 * output[:, None, None] * slopes[:, :, None] * slopes[:, None] * (x @ x.mT)
    )
    spread = (each - limit).square().sum((1, 2))
    assert relative(each.mean(0), limit) < 5 * (spread.mean().item() / units) ** 0.5 / limit.norm().item()
    for m in (10, 100):
        variance = (each.view(-1, m, 4, 4).mean(1) - limit).square().sum((1, 2)).mean()
        assert variance.item() == pytest.approx(spread.mean().item() / m, rel=0.1)


@pytest.mark.claim("Deviation in width and depth", verdict="open")
@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_the_deviation_grows_like_the_root_of_the_depth_over_the_width(name):
    found = [(depth, deviation(name, depth, 256, 12)) for depth in (2, 4, 8, 16)]
    assert 0.35 < exponent(found) < 0.65
    assert all(0.5 < value / (depth / 256) ** 0.5 < 2.5 for depth, value in found)


def hostile(kind):
    if kind == "close":
        return on_a_sphere(6, 4) + 0.05 * on_a_sphere(1, 4, 1)[0] * torch.arange(6)[:, None].double()
    if kind == "opposite":
        half = on_a_sphere(3, 4)
        return torch.cat([half, -half])
    if kind == "one dimension more":
        return torch.cat(
            [on_a_sphere(5, 1, radius=0.2) * torch.arange(1, 6)[:, None].double(), torch.ones(5, 1)], 1
        ).double()
    return on_a_sphere(6, 4)


@pytest.mark.claim("Deep leaky ReLU networks", verdict="holds")
@pytest.mark.parametrize("kind", ["sphere", "close", "opposite", "one dimension more"])
@pytest.mark.parametrize("slope, branch", [(0.0, None), (-0.5, None), (0.0, 0.7)])
def test_kappa_tends_to_what_the_norms_say(kind, slope, branch):
    x, gain = hostile(kind), (2 / (1 + slope**2)) ** 0.5
    limit = deep_relu_condition(x.norm(dim=1))
    found = [kappa(wide_kernel(x, leaky_relu(slope), [1.0] * depth, gain=gain, branch=branch)) for depth in (150, 600)]
    assert abs(found[1] - limit) < 0.4 * abs(found[0] - limit)
    assert found[1] == pytest.approx(limit, rel=0.25)


@pytest.mark.claim("A limit of (n + 4) / 3", verdict="fails")
def test_two_orthogonal_samples_pass_below_n_plus_four_thirds():
    found = [kappa(wide_kernel(torch.eye(2), leaky_relu(0.0), [1.0] * depth, gain=KAIMING)) for depth in (100, 2000)]
    assert found[0] < 6 / 3 and found[1] == pytest.approx(5 / 3, rel=5e-3)
    share = exact_pair(math.pi / 2, 2000)[1]
    assert found[1] == pytest.approx((1 + share) / (1 - share), rel=1e-6)


@pytest.mark.claim("Equal norms are best", verdict="holds")
@instances
@given(st.integers(2, 6), seeds, st.sampled_from([0.01, 1.0, 4.0]))
def test_other_norms_have_no_smaller_condition(n, seed, spread):
    norms = (spread * gaussian(seed, n)).exp()
    assert deep_relu_condition(norms) * SLACK >= (n + 3) / 3
    assert deep_relu_condition(7 * torch.ones(n)) == pytest.approx((n + 3) / 3)


@pytest.mark.claim("Branches of one over the depth, and of its root", verdict="holds")
@pytest.mark.parametrize("dual, gain", [(leaky_relu(0.0), KAIMING), (smooth(torch.tanh), 1.0)])
def test_branches_of_one_over_the_depth_leave_one_hidden_layer(dual, gain):
    x = gaussian(0, 5, 6)
    one = wide_kernel(x, dual, [1.0, 1.0], gain=gain)
    errors = [relative(wide_kernel(x, dual, [1.0] * depth, gain=gain, branch=1 / depth), one) for depth in (40, 160)]
    assert errors[1] < 0.02 and errors[1] == pytest.approx(errors[0] / 4, rel=0.1)


@pytest.mark.claim("Branches of one over the depth, and of its root", verdict="holds")
def test_branches_of_one_over_the_root_of_the_depth_leave_a_flow():
    x, n, time = on_a_sphere(4, 3), 4, 1.5
    dual = leaky_relu(0.0)

    def flow(_, state):
        values, kernel = torch.from_numpy(state).view(2, n, n)
        both, slopes = dual((values + values.mT) / 2)
        return torch.stack([2 * both, 2 * both + 2 * slopes * kernel]).flatten().numpy()

    start = 2 / 3 * torch.stack([x @ x.mT, x @ x.mT])
    end = scipy.integrate.solve_ivp(flow, (0, time), start.flatten().numpy(), rtol=1e-9, atol=1e-12).y[:, -1]
    values, kernel = torch.from_numpy(end).view(2, n, n)
    both, slopes = dual((values + values.mT) / 2)
    limit = 2 * both + 2 * slopes * kernel
    errors = []
    for blocks in (40, 160):
        found = wide_kernel(x, dual, [1.0] * (blocks + 2), gain=KAIMING, branch=(time / blocks) ** 0.5)
        errors.append(relative(found, limit))
    assert errors[1] < 0.02 and errors[1] == pytest.approx(errors[0] / 4, rel=0.1)


def correlation_bound(start, mu, activations):
    """Correlations behind layers of a centred activation, of which the share mu is not linear."""
    return start / (start + (1 - start) * (1 + mu) ** activations)


def off_diagonal_condition(bounds):
    """The bound on kappa of a matrix with ones on its diagonal, and other entries below these, of norm rho."""
    rho = torch.linalg.eigvalsh(bounds)[-1].item()
    return (1 + rho) / (1 - rho) if rho < 1 else math.inf


def power_series(weights, r):
    """s(r) and its derivative, for weights of degrees from 1 on that add up to one."""
    degrees = torch.arange(1, weights.shape[-1] + 1, dtype=torch.float64)
    powers = r[..., None] ** (degrees - 1)
    return (weights * powers).sum(-1) * r, (weights * degrees * powers).sum(-1)


@st.composite
def hermite_weights(draw, most=12):
    kind, n = draw(st.sampled_from(["spread", "sparse", "one", "two", "high"])), draw(st.integers(1, most))
    weights = gaussian(draw(seeds), n).square()
    if kind == "sparse":
        weights = weights * (gaussian(draw(seeds), n) > 0) + 1e-300
    elif kind == "one":
        weights = torch.eye(n).double()[draw(st.integers(0, n - 1))]
    elif kind == "two":
        weights = torch.eye(n).double()[0] * draw(st.floats(0, 1)) + torch.eye(n).double()[min(1, n - 1)]
    elif kind == "high":
        weights = torch.cat([weights[:1] * 1e-3, torch.zeros(80), weights])
    return (weights / weights.sum()).double()


@pytest.mark.claim("Correlations behind centred activations", verdict="holds")
@instances
@given(hermite_weights(), st.floats(-1, 1))
def test_correlations_shrink_by_the_share_that_is_not_linear(weights, r):
    mu, r = 1 - weights[0].item(), exact(r)
    value = power_series(weights, r)[0]
    assert abs(value) <= abs(r) * (1 - mu * (1 - abs(r))) + 1e-14
    if abs(value) < 1 - 1e-9 and abs(r) < 1 - 1e-9:
        assert abs(value) / (1 - abs(value)) <= abs(r) / (1 - abs(r)) / (1 + mu) * (1 + 1e-6)


@pytest.mark.claim("Kappa behind centred activations", verdict="holds")
@pytest.mark.parametrize("activation", [torch.tanh, functional.gelu, torch.cos])
def test_the_condition_of_wide_networks_is_bounded_by_the_correlation_of_the_samples(activation):
    normal, x = centred(activation), on_a_sphere(10, 20)
    mu, finite = 1 - hermite_coefficients(normal, exact([1.0]))[0, 1].item() ** 2, 0
    for depth in (2, 10, 40):
        found = kappa(wide_kernel(x, smooth(normal), [1.0] * depth, gain=1.0))
        correlations = (x @ x.mT / 20).abs().fill_diagonal_(0.0)
        bound = off_diagonal_condition(correlation_bound(correlations, mu, depth - 1))
        assert found <= bound * SLACK
        finite += bound < math.inf
    assert finite and found < 1.01


def normalised_recursion(name, widths, x):
    """The induction of the proof, with the divisor of each normalisation."""
    _, gain, dual = ACTIVATIONS[name]
    first, *factors = standard_factors(widths, gain)
    values = gain**2 / x.shape[1] * (x @ x.mT)
    theta = first * values
    for factor in factors:
        sizes = values.diagonal().sqrt()
        both, slopes = (gain**2 * mean for mean in dual(values / torch.outer(sizes, sizes)))
        values, theta = both, factor * both + slopes * theta / torch.outer(sizes, sizes)
    return theta


@pytest.mark.claim("Layer normalisation makes all norms equal", verdict="holds")
@pytest.mark.parametrize("depth", [2, 3, 6])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_layer_normalisation_is_a_chain_on_samples_of_one_norm(name, depth):
    x, widths = exact([[0.3], [1.0], [1.0], [1.3], [1.6]]) * gaussian(0, 5, 8), [8, *[50] * (depth - 1), 1]
    expected = normalised_recursion(name, widths, x)
    torch.testing.assert_close(limit_kernel(name, "LayerNorm", widths, x), expected, rtol=1e-11, atol=1e-11)
    assert relative(limit_kernel(name, "chain", widths, x), expected) > 0.05

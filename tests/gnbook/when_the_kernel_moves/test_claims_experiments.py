"""Liu, Zhu and Belkin 2020, section 6, appendix B and Table 1: the experiments, and orders of the Hessian.

Liu, Zhu and Belkin 2020, appendices H and I.9: the proof of the theorem on bottlenecks.
"""

import math

import numpy as np
import pytest
import torch
from gnbook.shared.hessian import hessian_ends
from gnbook.when_the_kernel_moves.heads import Entrywise, Softmax, output_kernel, swish
from gnbook.when_the_kernel_moves.networks import bottleneck, identity, shallow
from hypothesis import given
from hypothesis import strategies as st

from tests.gnbook.when_the_kernel_moves.helpers import SLACK, TINY, half_square, hess, inputs, narrow
from tests.oracles import norm
from tests.strategies import exact, gaussian, instances, seeds


@pytest.mark.claim("Liu Section 6, swish as an instance", verdict="fails")
def test_the_slope_of_swish_has_a_zero():
    z = exact([[-12.78464542761074]])
    assert abs(Entrywise(swish).slopes(z).item()) < 1e-12
    assert Entrywise(swish).slopes(z - 5).item() < 0 < Entrywise(swish).slopes(z + 5).item()


@pytest.mark.claim("A softmax that is sure", verdict="holds")
@instances
@given(seeds, st.integers(1, 5), st.integers(2, 4), st.sampled_from([0.1, 1.0, 10.0, 40.0]))
def test_the_kernel_of_a_softmax_vanishes_with_the_loss(seed, n, k, size):
    f, labels = size * gaussian(seed, n, k), torch.randint(k, (n,), generator=torch.Generator().manual_seed(seed))
    y = torch.nn.functional.one_hot(labels, k).double()
    a = gaussian(seed + 1, n * k, n * k)
    kernel = a @ a.mT
    doubt = 1 - (Softmax().outputs(f) * y).sum(-1)
    tilde = output_kernel(kernel, Softmax().slopes(f))
    for measure in (norm, lambda t: t.norm().item()):
        assert measure(tilde) <= 4 * doubt.max().item() ** 2 * measure(kernel) * SLACK + 1e-14
    assert doubt.max() <= n * Softmax().loss(f, y) * SLACK + 1e-15


@pytest.mark.claim("Liu Appendix B, training of the bottleneck", verdict="fails")
@instances
@given(seeds, st.integers(1, 5), st.integers(1, 5), st.floats(0, 20), st.floats(-3, 3))
def test_without_biases_the_network_is_homogeneous_in_its_input(seed, m, narrow_width, scale, x):
    network = bottleneck(m, narrow_width, inputs=1, seeds=[seed])
    assert torch.allclose(network(exact([[scale * x]])), scale * network(exact([[x]])), rtol=1e-10, atol=1e-10)


def means(widths, phi, build=None, runs=8):
    """Mean over networks of the norm of the Hessian of one output."""
    build = build or (lambda m, seed: shallow(m, 1, activation=torch.tanh, seeds=[seed]))
    sample = exact([[1.0, 1.0]])
    values = []
    for m in widths:
        ends = [hessian_ends(build(m, s), sample, output=lambda y: phi(y[0]), tolerance=1e-3) for s in range(runs)]
        values.append(sum(end.norm for end in ends) / runs)
    return values


def kernels(widths, build, runs=8):
    sample = exact([[1.0, 1.0]])
    return [sum(build(m, s).kernel(sample).item() for s in range(runs)) / runs for m in widths]


def slope_of(widths, values):
    return math.log(values[-1] / values[0]) / math.log(widths[-1] / widths[0])


@pytest.mark.claim("Liu Table 1, linear output layer", verdict="holds")
def test_the_row_of_a_linear_output_layer():
    widths = (64, 4096)
    assert -0.5 - 0.05 < slope_of(widths, means(widths, identity)) < -0.3
    assert abs(slope_of(widths, kernels(widths, lambda m, s: shallow(m, 1, activation=torch.tanh, seeds=[s])))) < 0.1


@pytest.mark.claim("Liu Table 1, non-linear output layer", verdict="fails")
def test_the_row_of_a_non_linear_output_layer():
    widths = (64, 4096)
    assert abs(slope_of(widths, means(widths, torch.exp, runs=12))) < 0.25


@pytest.mark.claim("Liu Table 1, bottleneck", verdict="holds")
def test_the_row_of_a_bottleneck():
    widths = (64, 4096)

    def build(m, seed):
        return bottleneck(m, 1, 1, activation=torch.tanh, seeds=[seed])

    norms = means(widths, identity, build, runs=16)
    assert abs(slope_of(widths, norms)) < 0.2 and norms[1] > 0.3
    assert abs(slope_of(widths, kernels(widths, build, runs=16))) < 0.2


radii = st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0, 3.0])


@pytest.mark.claim("Liu Eqs. 106 to 109", verdict="holds")
@instances
@given(seeds, st.integers(1, 4), inputs)
def test_the_block_of_the_second_layer(seed, m, x):
    theta = gaussian(seed, 4 * m)
    w1, w2, w3, w4 = theta.view(4, m)
    alpha = (w1 * x) ** 2 / 2
    whole = hess(lambda t: narrow(t, x), theta)
    block = whole[m : 2 * m, m : 2 * m]
    total = (w4 * w3**2).sum()
    assert torch.allclose(block, total * torch.outer(alpha, alpha) / m**1.5, atol=TINY)
    assert norm(block) == pytest.approx((total.abs() * (alpha @ alpha) / m**1.5).item(), rel=1e-9, abs=TINY)
    assert norm(whole) >= norm(block) / SLACK
    g = torch.func.grad(lambda t: narrow(t, x))(theta)[m : 2 * m]
    pre = w3 * (w2 @ alpha) / m**0.5
    assert torch.allclose(g, (w4 * pre * w3).sum() * alpha / m, atol=TINY)  # Eq. 107


@pytest.mark.claim("Liu Appendix H, values of the first layer", verdict="fails")
@pytest.mark.parametrize("x", [0.5, 1.0, 2.0])
def test_the_values_of_the_first_layer_are_squares(x):
    theta = exact([1.0, 0.3, 1.0, 1.0])  # m = 1; the block of w^(2) is |alpha|^2 for w^(3) = w^(4) = 1
    squared = hess(lambda t: narrow(t, x), theta)[1, 1].item()
    printed = x**2 / 4 * theta[0].item() ** 2
    assert math.isclose(squared, x**4 / 4, rel_tol=1e-12)
    assert math.isclose(squared / printed, x**2, rel_tol=1e-12)  # right at x = 1 and w = 1 only


def shrunk(w, radius):
    """The point of a ball whose first weights are the smallest: a step towards zero."""
    return w * (1 - radius / w.norm(dim=-1, keepdim=True))


@pytest.mark.claim("Liu Appendix H, bound on the first layer", verdict="fails")
@pytest.mark.parametrize("m", [40, 100, 400])
def test_half_of_the_balls_have_smaller_first_weights_than_printed(m):
    radius, runs = m**0.5 / 2, 4000
    w = gaussian(m, runs, m)
    total = shrunk(w, radius).square().sum(1)
    below = total < m / 2 - radius**2
    share = below.double().mean().item()
    assert 0.45 < share < 0.6 and share > 5 * math.exp(-m / 16)  # what the bound allows
    assert torch.equal(below, w.norm(dim=1) < m**0.5)  # (|w_0| - R)^2 < m/4
    alpha = half_square(shrunk(w, radius))
    assert (alpha.square().sum(1) >= total.square() / (4 * m) / SLACK).all()  # fourth powers do not mend the bound


@pytest.mark.claim("Liu Appendix H, bound on the first layer, corrected", verdict="holds")
@pytest.mark.parametrize("m", [1, 20, 60, 400])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
def test_first_weights_are_rarely_smaller_than_a_radius_allows(m, share):
    radius, runs = share * (m / 2) ** 0.5, 4000
    least = ((m / 2) ** 0.5 - radius) ** 2
    w = gaussian(m, runs, m)
    ahead = w.norm(dim=1) >= (m / 2) ** 0.5
    assert (~ahead).double().mean() <= math.exp(-m / 16)
    for end in (shrunk(w, radius), w + radius * gaussian(m + 1, m) / gaussian(m + 1, m).norm(), w):
        assert (end[ahead].square().sum(1) * SLACK + TINY >= least).all()
    edge = shrunk(w * (m / 2) ** 0.5 / w.norm(dim=1, keepdim=True), radius).square().sum(1)
    assert torch.allclose(edge, torch.full_like(edge, least), atol=1e-9)  # attained
    fixed = (w + radius * m**-0.5).square().sum(1)  # an offset that does not know w
    assert (fixed < m / 2).double().mean() <= math.exp(-m / 16)


@pytest.mark.claim("Liu Appendix H, values of the first layer, corrected", verdict="holds")
@instances
@given(seeds, st.integers(1, 50), inputs)
def test_the_values_of_the_first_layer_with_fourth_powers(seed, m, x):
    w = gaussian(seed, m)
    alpha = half_square(w * x)
    assert torch.isclose(alpha @ alpha, x**4 / 4 * (w**4).sum(), rtol=1e-12)
    assert alpha @ alpha * SLACK >= x**4 / 4 * (w @ w) ** 2 / m


@pytest.mark.claim("Liu Lemma H.1", verdict="fails")
def test_offsets_that_know_the_draw_make_the_sum_zero():
    m, radius, zeros = 10_000, 2.0, 0
    for seed in range(100):
        x, y = gaussian(seed, 2, m)
        s = -(x @ y**2) / (y**4).sum() * y**2
        assert abs((x + s) @ y**2) < 1e-8
        zeros += s.norm().item() <= radius
    assert zeros >= 90  # the lemma allows 2 delta


@pytest.mark.claim("Liu Lemma H.1, corrected", verdict="holds")
@pytest.mark.parametrize("m", [20, 200])
@pytest.mark.parametrize("kind", ["fixed", "of y"])
def test_the_sum_is_above_a_share_of_the_root_of_the_width(m, kind):
    runs = 4000
    x, y, t = gaussian(0, runs, m), gaussian(1, runs, m), 2 * gaussian(3, m) / m**0.5
    fourth = (y + t) ** 2
    s = torch.ones(m).double() if kind == "fixed" else fourth / fourth.norm(dim=1, keepdim=True)
    sums = ((x + s) * fourth).sum(1).abs()
    for delta in (0.05, 0.2, 0.6):
        bound = (math.pi / 2) ** 0.5 / 2 * delta * m**0.5
        assert (sums < bound).double().mean() <= delta + math.exp(-m / 16)


@pytest.mark.claim("Liu Eq. 122", verdict="holds")
@instances
@given(seeds, st.integers(1, 3), radii)
def test_the_second_moment_of_the_polynomial(seed, m, radius):
    s, t = gaussian(seed, 2, m) * radius
    nodes, weights = (exact(a) for a in np.polynomial.hermite_e.hermegauss(8))
    weights = weights / weights.sum()
    mean, square, other = exact(0.0), exact(0.0), exact(0.0)
    for a, b in zip(s, t, strict=True):  # the polynomial is a sum over units that are independent
        q = (nodes[:, None] + a) * nodes**2 + 2 * nodes[:, None] * nodes * b
        p = torch.outer(weights, weights)
        q1, q2 = (p * q).sum(), (p * q**2).sum()
        square = square + q2 + 2 * mean * q1
        mean = mean + q1
        other = other + 4 * b**2
    expected = 3 * m + 2 * (s @ s) + s.sum() ** 2 + other
    assert torch.isclose(square, expected, rtol=1e-9) and expected >= 3 * m


def tail(size, deviation):
    """Probability that a Gaussian variable of this deviation exceeds a size."""
    return math.erfc(size / deviation / 2**0.5)


@pytest.mark.claim("Liu Eq. 124, corrected", verdict="holds")
@pytest.mark.claim("Liu Eq. 125, corrected", verdict="holds")
@instances
@given(seeds, st.integers(1, 6), radii)
def test_the_deviations_of_two_sums_and_the_size_of_one_of_three_factors(seed, m, radius):
    s, t = gaussian(seed, 2, m)
    s, t = radius * s / s.norm(), radius * t / t.norm()
    assert (s * t).norm() <= radius**2 * SLACK and (t**2).norm() <= radius**2 * SLACK
    assert (s * t**2).sum().abs() <= radius**3 * SLACK


@pytest.mark.claim("Liu Eq. 124", verdict="fails")
@pytest.mark.parametrize("delta", [0.01, 0.1, 0.5])
def test_in_a_small_ball_the_tails_are_heavier_than_printed(delta):
    radius = 0.1  # t = (R, 0, ...): the sum is x_1 R^2
    printed = math.log(4 / delta) * radius**4
    seen = (radius**2 * gaussian(0, 20_000).abs() > printed).double().mean().item()
    assert seen > 0.9 > delta and math.isclose(seen, tail(printed, radius**2), abs_tol=0.01)


@pytest.mark.claim("Liu Eq. 125", verdict="fails")
def test_a_sum_of_three_factors_may_exceed_the_radius():
    s = t = exact([2.0, 0.0])
    assert (s * t**2).sum() == 8 > 2 == s.norm()

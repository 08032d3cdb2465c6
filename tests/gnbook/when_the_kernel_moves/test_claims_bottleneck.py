"""Liu, Zhu and Belkin 2020, section 4 and appendices H and I.9: the Hessian of a network with a bottleneck."""

import math

import numpy as np
import pytest
import torch
from gnbook.shared.hessian import hessian_ends
from gnbook.when_the_kernel_moves.bottleneck import ball_floor, cubics, limit_norm
from hypothesis import given
from hypothesis import strategies as st

from tests.gnbook.when_the_kernel_moves.helpers import (
    SLACK,
    TINY,
    half_square,
    inputs,
    narrow,
    narrow_hessian,
    narrow_network,
    slopes,
)
from tests.oracles import norm
from tests.strategies import exact, gaussian, instances, seeds


@pytest.mark.claim("Liu Eq. 30", verdict="holds if")
@instances
@given(seeds, st.integers(1, 6), st.floats(-3, 3), st.sampled_from([torch.tanh, torch.sigmoid, half_square]))
def test_the_221_norm_behind_a_bottleneck_is_a_sum(seed, m, a, sigma):
    w = gaussian(seed, m)
    by_formula = sum(u**2 * abs(slopes(sigma, u * a)[1]) for u in w.tolist())
    second = torch.func.hessian(lambda a: sigma(w * a))(exact(a))
    assert second.abs().sum().item() == pytest.approx(by_formula, rel=1e-5, abs=TINY)


@pytest.mark.claim("Bottleneck as a product", verdict="holds")
@instances
@given(seeds, st.integers(1, 4), inputs)
def test_the_network_of_theorem_4_1_is_a_product_of_cubics(seed, m, x):
    theta = gaussian(seed, 4 * m)
    h, c = cubics(list(theta.view(4, m)), x)
    found = narrow(theta, x).item(), narrow_network(theta)(exact([[x]])).item()
    assert found == pytest.approx([c.value * h.value**2 / 2] * 2, rel=1e-10, abs=1e-14)

    def factors(theta):
        w1, w2, w3, w4 = theta.view(4, m)
        return torch.stack([x**2 * (w2 @ w1**2) / (2 * m**0.5), w4 @ w3**2 / m**0.5])

    step = gaussian(seed + 1, 4 * m)
    near, far = torch.func.hessian(factors)(theta), torch.func.hessian(factors)(theta + 0.7 * step / step.norm())
    for cubic, g, here, there in zip((h, c), torch.func.jacrev(factors)(theta), near, far, strict=True):
        assert g.norm().item() == pytest.approx(cubic.gradient, rel=1e-10, abs=1e-14)
        assert norm(here) <= cubic.hessian(0.0) * SLACK + TINY
        assert norm(there) <= cubic.hessian(0.7) * SLACK + TINY


@pytest.mark.claim("Bottleneck as a product", verdict="holds")
@instances
@given(seeds, st.integers(1, 4), st.booleans())
def test_a_unit_with_one_weight_attains_the_bound_on_the_hessian_and_a_step_of_it_that_in_a_ball(seed, m, upper):
    u, v = gaussian(seed, 2, m)
    (v if upper else u).zero_()
    second, c = (
        torch.func.hessian(lambda p: (p[0] * p[1] ** 2).sum() / m**0.5)(torch.stack([u, v])),
        cubics([v, u, v, u], 1.0)[1],
    )
    assert norm(second.reshape(2 * m, -1)) == pytest.approx(c.hessian(0.0), rel=1e-10)
    largest = (u.abs() + v.abs()).argmax()
    for w in (u, v):
        w[largest] += math.copysign(0.2, w[largest])
    assert cubics([v, u, v, u], 1.0)[1].hessian(0.0) == pytest.approx(c.hessian(0.2 * 2**0.5), rel=1e-10)


@pytest.mark.claim("Liu Theorem 4.1", verdict="fails")
@instances
@given(seeds, st.integers(1, 5), inputs)
def test_the_hessian_falls_with_the_fourth_power_of_the_input_and_vanishes_with_both_cubics(seed, m, other):
    theta = gaussian(seed, 4 * m)
    constant, delta = 1e-3, 0.1  # however small they are
    bound = math.sqrt(3) / 8 * constant * delta**3
    x = min(1.0, math.sqrt(bound / norm(narrow_hessian(theta, 1.0))) / 2)
    assert norm(narrow_hessian(theta, x)) < bound * x**2  # not with the square, as printed
    theta[m : 2 * m] = theta[3 * m :] = 0
    assert norm(narrow_hessian(theta, other)) == 0


@pytest.mark.claim("Liu Theorem 4.1, corrected", verdict="holds")
@pytest.mark.parametrize("offset", ["none", "first entries", "spread"])
@pytest.mark.parametrize("m", [20, 400])
def test_at_a_fixed_point_the_hessian_is_rarely_small(offset, m):
    runs, delta, x = 400, 0.2, 0.7
    shift = torch.zeros(4, m).double()
    if offset == "first entries":
        shift[:, 0] = 1.5
    elif offset == "spread":
        shift[:] = 3 / (4 * m) ** 0.5
    w1, _, w3, w4 = (gaussian(m, runs, 4, m) + shift).unbind(1)
    blocks = (w4 * w3**2).sum(1).abs() * half_square(w1 * x).square().sum(1) / m**1.5  # no more than the norm of H
    bound = math.sqrt(math.pi / 2) / 32 * delta * x**4
    few, many = ((blocks < c * bound).double().mean() for c in (1, 90))
    assert few <= delta + 2 * math.exp(-m / 16)
    assert many > delta + 2 * math.exp(-400 / 16)  # and of this order


def zero_nearby(theta):
    """The way to a point with c = h = 0, found by Newton steps along the gradients of the two cubics."""
    w1, w2, w3, w4 = end = theta.view(4, -1).clone()
    for u, v in ((w2, w1), (w4, w3)):
        for _ in range(50):
            gu, gv = v * v, 2 * u * v
            step = (u @ (v * v)) / (gu @ gu + gv @ gv)
            u -= step * gu
            v -= step * gv
    return end.flatten() - theta


@pytest.mark.claim("Theorem 4.1 in a whole ball", verdict="holds")
@instances
@given(seeds, st.sampled_from([2, 5, 30]), st.sampled_from([0.3, 1.0, 2.0]), st.sampled_from([0.0, 0.02, 0.2, 1.0]))
def test_the_floor_in_a_ball_is_below_all_that_is_found_in_it(seed, m, x, radius):
    theta = gaussian(seed, 4 * m)
    floor, way = ball_floor(*cubics(list(theta.view(4, m)), x), radius), zero_nearby(theta)
    steps = [torch.zeros_like(theta), way * min(1.0, radius / way.norm().item())]
    for step in steps + [radius * s / s.norm() for s in gaussian(seed + 1, 2, 4 * m)]:
        assert norm(narrow_hessian(theta + step, x)) * SLACK + TINY >= floor


@pytest.mark.claim("Limit of the Hessian of a bottleneck", verdict="holds")
def test_the_norm_tends_to_that_of_a_matrix_of_size_two():
    errors = []
    for m in (20, 300):
        error = 0.0
        for seed in range(4):
            theta = gaussian(seed, 4 * m)
            h, c = cubics(list(theta.view(4, m)), 1.0)
            value = hessian_ends(narrow_network(theta), exact([[1.0]]), output=lambda y: y[0]).norm
            assert h.gradient**2 == pytest.approx(7 / 4, rel=25 / m**0.5)
            assert c.gradient**2 == pytest.approx(7, rel=25 / m**0.5)
            error += abs(value / limit_norm(h.value / h.gradient, c.value / c.gradient) - 1) / 4
        errors.append(error)
    assert errors[1] < 0.5 * errors[0] and errors[1] < 0.2


# ---- Appendix H: the proof of the theorem ---------------------------------------------------------------------------


@pytest.mark.claim("Liu Eqs. 106 to 109", verdict="holds")
@instances
@given(seeds, st.integers(1, 4), inputs)
def test_the_block_of_the_second_layer(seed, m, x):
    theta = gaussian(seed, 4 * m)
    w1, w2, w3, w4 = theta.view(4, m)
    alpha, total = (w1 * x) ** 2 / 2, (w4 * w3**2).sum()
    whole = narrow_hessian(theta, x)
    block = whole[m : 2 * m, m : 2 * m]
    assert torch.allclose(block, total * torch.outer(alpha, alpha) / m**1.5, atol=TINY)
    assert norm(block) == pytest.approx((total.abs() * (alpha @ alpha) / m**1.5).item(), rel=1e-9, abs=TINY)
    assert norm(whole) >= norm(block) / SLACK
    g = torch.func.grad(lambda t: narrow(t, x))(theta)[m : 2 * m]
    pre = w3 * (w2 @ alpha) / m**0.5
    assert torch.allclose(g, (w4 * pre * w3).sum() * alpha / m, atol=TINY)  # Eq. 107


@pytest.mark.claim("Liu Appendix H, values of the first layer", verdict="fails")
@pytest.mark.claim("Liu Appendix H, values of the first layer, corrected", verdict="holds")
@instances
@given(seeds, st.integers(1, 50), inputs)
def test_the_values_of_the_first_layer_with_fourth_powers(seed, m, x):
    w = gaussian(seed, m)
    alpha = half_square(w * x)
    assert torch.isclose(alpha @ alpha, x**4 / 4 * (w**4).sum(), rtol=1e-12)
    assert alpha @ alpha * SLACK >= x**4 / 4 * (w @ w) ** 2 / m
    squared = narrow_hessian(exact([1.0, 0.3, 1.0, 1.0]), x)[1, 1].item()  # |alpha|^2, by the block of w^(2)
    assert math.isclose(squared, x**4 / 4, rel_tol=1e-12)  # in print x^2 / 4


def shrunk(w, radius):
    """The point of a ball whose first weights are the smallest: a step towards zero."""
    return w * (1 - radius / w.norm(dim=-1, keepdim=True))


@pytest.mark.claim("Liu Appendix H, bound on the first layer", verdict="fails")
@pytest.mark.parametrize("m", [40, 100, 400])
def test_half_of_the_balls_have_smaller_first_weights_than_printed(m):
    radius, w = m**0.5 / 2, gaussian(m, 4000, m)
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
    root, w, step = (m / 2) ** 0.5, gaussian(m, 4000, m), gaussian(m + 1, m)
    radius, least = share * root, (root - share * root) ** 2
    ahead = w.norm(dim=1) >= root
    assert (~ahead).double().mean() <= math.exp(-m / 16)
    for end in (shrunk(w, radius), w + radius * step / step.norm(), w):
        assert (end[ahead].square().sum(1) * SLACK + TINY >= least).all()
    edge = shrunk(w * root / w.norm(dim=1, keepdim=True), radius).square().sum(1)
    assert torch.allclose(edge, torch.full_like(edge, least), atol=1e-9)  # attained
    fixed = (w + radius * m**-0.5).square().sum(1)  # an offset that does not know w
    assert (fixed < m / 2).double().mean() <= math.exp(-m / 16)


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


radii = st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0, 3.0])


@pytest.mark.claim("Liu Eq. 122", verdict="holds")
@instances
@given(seeds, st.integers(1, 3), radii)
def test_the_second_moment_of_the_polynomial(seed, m, radius):
    s, t = gaussian(seed, 2, m) * radius
    nodes, weights = (exact(a) for a in np.polynomial.hermite_e.hermegauss(8))
    p = torch.outer(weights, weights) / weights.sum() ** 2
    # the polynomial is a sum over units that are independent
    q = torch.stack(
        [(nodes[:, None] + a) * nodes**2 + 2 * nodes[:, None] * nodes * b for a, b in zip(s, t, strict=True)]
    )
    mean, square = (p * q).sum((1, 2)), (p * q**2).sum((1, 2))
    expected = 3 * m + 2 * (s @ s) + s.sum() ** 2 + 4 * (t @ t)
    assert torch.isclose(square.sum() - mean.square().sum() + mean.sum() ** 2, expected, rtol=1e-9)
    assert expected >= 3 * m


@pytest.mark.claim("Liu Eq. 124, corrected", verdict="holds")
@pytest.mark.claim("Liu Eq. 125, corrected", verdict="holds")
@instances
@given(seeds, st.integers(1, 6), radii)
def test_the_deviations_of_two_sums_and_the_size_of_one_of_three_factors(seed, m, radius):
    s, t = (radius * a / a.norm() for a in gaussian(seed, 2, m))
    assert (s * t).norm() <= radius**2 * SLACK and (t**2).norm() <= radius**2 * SLACK
    assert (s * t**2).sum().abs() <= radius**3 * SLACK


@pytest.mark.claim("Liu Eq. 124", verdict="fails")
@pytest.mark.claim("Liu Eq. 125", verdict="fails")
@pytest.mark.parametrize("delta", [0.01, 0.1, 0.5])
def test_in_a_small_ball_tails_are_heavier_than_printed_and_in_a_large_one_the_sum_of_three_factors(delta):
    radius = 0.1  # t = (R, 0, ...): the sum is x_1 R^2
    seen = radius**2 * gaussian(0, 20_000).abs() > math.log(4 / delta) * radius**4
    assert seen.double().mean().item() > 0.9 > delta
    s = t = exact([2.0, 0.0])
    assert (s * t**2).sum() == 8 > 2 == s.norm()

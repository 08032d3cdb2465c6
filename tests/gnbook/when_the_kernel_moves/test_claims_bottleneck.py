"""Liu, Zhu and Belkin 2020, section 4: the Hessian of a network with a bottleneck."""

import math

import pytest
import torch
from gnbook.when_the_kernel_moves.bottleneck import (
    ball_floor,
    cubics,
    limit_norm,
)
from gnbook.when_the_kernel_moves.networks import StackedNetworks, identity
from hypothesis import given
from hypothesis import strategies as st

from tests.gnbook.when_the_kernel_moves.helpers import SLACK, TINY, half_square, hess, inputs, narrow, slopes
from tests.oracles import norm
from tests.strategies import exact, gaussian, instances, seeds


@pytest.mark.claim("Liu Eq. 30", verdict="holds if")
@instances
@given(seeds, st.integers(1, 6), st.floats(-3, 3), st.sampled_from([torch.tanh, torch.sigmoid, half_square]))
def test_the_221_norm_behind_a_bottleneck_is_a_sum(seed, m, a, sigma):
    w = gaussian(seed, m)
    second = hess(lambda a: sigma(w * a), exact(a))
    by_formula = torch.stack([u**2 * abs(slopes(sigma, (u * a).item())[1]) for u in w]).sum()
    assert torch.isclose(second.abs().sum(), by_formula, atol=TINY)


@pytest.mark.claim("Bottleneck as a product", verdict="holds")
@instances
@given(seeds, st.integers(1, 4), inputs)
def test_the_network_of_theorem_4_1_is_a_product_of_cubics(seed, m, x):
    theta = gaussian(seed, 4 * m)
    h, c = cubics(list(theta.view(4, m)), x)
    assert narrow(theta, x).item() == pytest.approx(c.value * h.value**2 / 2, rel=1e-10, abs=1e-14)
    weights = [w.view(1, *shape) for w, shape in zip(theta.split(m), [(m, 1), (1, m)] * 2, strict=True)]
    network = StackedNetworks(weights, [1, m**-0.5, 1, m**-0.5], [half_square, identity, half_square])
    assert network(exact([[x]])).item() == pytest.approx(narrow(theta, x).item(), rel=1e-10, abs=1e-14)

    def factors(theta):
        w1, w2, w3, w4 = theta.view(4, m)
        return x**2 * (w2 @ w1**2) / (2 * m**0.5), w4 @ w3**2 / m**0.5

    step = gaussian(seed + 1, 4 * m)
    second = torch.func.jacrev(torch.func.jacrev(factors))
    near, far = second(theta), second(theta + 0.7 * step / step.norm())
    for cubic, g, here, there in zip((h, c), torch.func.jacrev(factors)(theta), near, far, strict=True):
        assert g.norm().item() == pytest.approx(cubic.gradient, rel=1e-10, abs=1e-14)
        assert norm(here) <= cubic.hessian(0.0) * SLACK + TINY
        assert norm(there) <= cubic.hessian(0.7) * SLACK + TINY


def cubic(u, v):
    """The cubic c, and its gradient, as functions of two vectors."""
    root = u.shape[-1] ** 0.5
    return (u * v**2).sum(-1) / root, torch.cat([v**2, 2 * u * v], -1) / root


@pytest.mark.claim("Liu Theorem 4.1", verdict="fails")
@instances
@given(seeds, st.integers(1, 5), inputs)
def test_the_hessian_falls_with_the_fourth_power_of_the_input_and_vanishes_with_both_cubics(seed, m, other):
    theta = gaussian(seed, 4 * m)
    at_one = norm(hess(lambda t: narrow(t, 1.0), theta))
    constant, delta = 1e-3, 0.1  # however small they are
    bound = math.sqrt(3) / 8 * constant * delta**3
    x = min(1.0, math.sqrt(bound / at_one) / 2)
    assert norm(hess(lambda t: narrow(t, x), theta)) < bound * x**2  # not with the square, as printed
    theta[m : 2 * m] = theta[3 * m :] = 0
    assert norm(hess(lambda t: narrow(t, other), theta)) == 0


def zero_nearby(theta):
    """The way to a point with c = h = 0, found by Newton steps along the gradients of the two cubics."""
    w1, w2, w3, w4 = (w.clone() for w in theta.view(4, -1))
    for u, v in ((w2, w1), (w4, w3)):
        for _ in range(50):
            gu, gv = v * v, 2 * u * v
            step = (u @ (v * v)) / (gu @ gu + gv @ gv)
            u -= step * gu
            v -= step * gv
    return torch.cat([w1, w2, w3, w4])


def liu_theorem_4_1(x, failure):
    return math.sqrt(math.pi / 2) / 32 * failure * x**4


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
    few, many = ((blocks < c * liu_theorem_4_1(x, delta)).double().mean() for c in (1, 90))
    assert few <= delta + 2 * math.exp(-m / 16)
    assert many > delta + 2 * math.exp(-400 / 16)  # and of this order


@pytest.mark.claim("Theorem 4.1 in a whole ball", verdict="holds")
@instances
@given(seeds, st.sampled_from([2, 5, 30]), st.sampled_from([0.3, 1.0, 2.0]), st.sampled_from([0.0, 0.02, 0.2, 1.0]))
def test_the_floor_in_a_ball_is_below_all_that_is_found_in_it(seed, m, x, radius):
    theta = gaussian(seed, 4 * m)
    floor = ball_floor(*cubics(list(theta.view(4, m)), x), radius)
    way = zero_nearby(theta) - theta
    steps = [torch.zeros_like(theta), way * min(1.0, radius / way.norm().item())]
    steps += [radius * s / s.norm() for s in gaussian(seed + 1, 2, 4 * m)]
    for step in steps:
        found = norm_by_parts(theta + step, x) if m > 5 else norm(hess(lambda t: narrow(t, x), theta + step))
        assert found * SLACK + TINY >= floor


def norm_by_parts(theta, x):
    """Norm of the Hessian by its parts: c (h'' h + h' h'^T), h c' h'^T and h^2 / 2 c'', by matrix products."""
    m = len(theta) // 4
    w1, w2, w3, w4 = theta.view(4, m)
    s, t = x**2 / (2 * m**0.5), 1 / m**0.5
    h, c = s * (w2 @ w1**2), t * (w4 @ w3**2)
    gh, gc = torch.cat([2 * s * w2 * w1, s * w1**2]), torch.cat([2 * t * w4 * w3, t * w3**2])

    def second(u, v, scale):
        zero = torch.zeros(m, m).double()
        return 2 * scale * torch.cat([torch.cat([u.diag(), v.diag()], 1), torch.cat([v.diag(), zero], 1)])

    top = c * (torch.outer(gh, gh) + h * second(w2, w1, s))
    cross = h * torch.outer(gc, gh)
    whole = torch.cat([torch.cat([top, cross.mT], 1), torch.cat([cross, h**2 / 2 * second(w4, w3, t)], 1)])
    return torch.linalg.eigvalsh(whole).abs().max().item()


@pytest.mark.claim("Limit of the Hessian of a bottleneck", verdict="holds")
def test_the_norm_tends_to_that_of_a_matrix_of_size_two():
    errors = []
    for m in (20, 300):
        error = 0.0
        for seed in range(4):
            theta = gaussian(seed, 4 * m)
            h, c = cubics(list(theta.view(4, m)), 1.0)
            value = norm_by_parts(theta, 1.0)
            assert h.gradient**2 == pytest.approx(7 / 4, rel=25 / m**0.5)
            assert c.gradient**2 == pytest.approx(7, rel=25 / m**0.5)
            error += abs(value / limit_norm(h.value / h.gradient, c.value / c.gradient) - 1) / 4
        errors.append(error)
    assert errors[1] < 0.5 * errors[0] and errors[1] < 0.2


@pytest.mark.claim("Bottleneck as a product", verdict="holds")
@instances
@given(seeds, st.integers(1, 4), st.booleans())
def test_a_unit_with_one_weight_attains_the_bound_on_the_hessian_and_a_step_of_it_that_in_a_ball(seed, m, upper):
    u, v = gaussian(seed, 2, m)
    (v if upper else u).zero_()
    second, c = hess(lambda p: cubic(*p.view(2, m))[0], torch.cat([u, v])), cubics([v, u, v, u], 1.0)[1]
    assert norm(second) == pytest.approx(c.hessian(0.0), rel=1e-10)
    largest = (u.abs() + v.abs()).argmax()
    for w in (u, v):
        w[largest] += math.copysign(0.2, w[largest])
    assert cubics([v, u, v, u], 1.0)[1].hessian(0.0) == pytest.approx(c.hessian(0.2 * 2**0.5), rel=1e-10)

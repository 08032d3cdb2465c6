"""Liu, Zhu and Belkin 2020, sections 4 to 6, appendices B and H, Table 1: networks whose kernel moves."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from gnbook.shared.hessian import hessian_ends
from gnbook.when_the_kernel_moves.bottleneck import ball_floor, cubics, limit_norm
from gnbook.when_the_kernel_moves.descent import liu_theorem_5_1
from gnbook.when_the_kernel_moves.heads import Entrywise, Softmax, output_kernel, swish
from gnbook.when_the_kernel_moves.networks import StackedNetworks, bottleneck, identity, shallow
from hypothesis import given
from hypothesis import strategies as st

from gnlib import GaussNewton
from tests.gnbook.transition_to_linearity import helpers
from tests.gnbook.transition_to_linearity.helpers import hess
from tests.oracles import norm
from tests.strategies import exact, gaussian, orthogonal, seeds

SLACK = 1 + 1e-9
TINY = 1e-11
inputs = st.sampled_from([-2.0, -0.3, 0.0, 0.5, 1.0, 3.0])


def half_square(z):
    """The activation of Theorem 4.1."""
    return z * z / 2


def slopes(phi, z):
    """First and second derivative of a function of one number."""
    return [slope.item() for slope in helpers.slopes(phi, exact(z))]


def narrow(theta, x):
    """Eq. 31, written out once more: one unit in the bottleneck, squares above and below."""
    w1, w2, w3, w4 = theta.view(4, -1)
    root = w1.shape[0] ** 0.5
    return (w4 @ (w3 * (w2 @ (w1 * x).square() / 2 / root)).square() / 2) / root


def narrow_hessian(theta, x):
    return hess(partial(narrow, x=x))(theta)


def narrow_network(theta):
    m = len(theta) // 4
    weights = [w.view(1, *shape) for w, shape in zip(theta.split(m), [(m, 1), (1, m)] * 2, strict=True)]
    return StackedNetworks(weights, [1, m**-0.5, 1, m**-0.5], [half_square, identity, half_square])


# ---- Section 4: a bottleneck -----------------------------------------------------------------------------------------


@pytest.mark.claim("Liu Eq. 30", verdict="holds if")
@given(seeds, st.integers(1, 6), st.floats(-3, 3), st.sampled_from([torch.tanh, torch.sigmoid, half_square]))
def test_the_221_norm_behind_a_bottleneck_is_a_sum(seed, m, a, sigma):
    w = gaussian(seed, m)
    by_formula = sum(u**2 * abs(slopes(sigma, u * a)[1]) for u in w.tolist())
    second = hess(lambda a: sigma(w * a))(exact(a))
    assert second.abs().sum().item() == pytest.approx(by_formula, rel=1e-5, abs=TINY)


@pytest.mark.claim("Bottleneck as a product", verdict="holds")
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
    near, far = hess(factors)(theta), hess(factors)(theta + 0.7 * step / step.norm())
    for index, (cubic, g, here, there) in enumerate(
        zip((h, c), torch.func.jacrev(factors)(theta), near, far, strict=True)
    ):
        assert g.norm().item() == pytest.approx(cubic.gradient, rel=1e-10, abs=1e-14)
        down = theta - 0.1 * torch.nn.functional.normalize(g, dim=0) * factors(theta)[index].sign()
        least = factors(down)[index].abs(), torch.func.jacrev(factors)(down)[index].norm()
        assert all(found * SLACK + TINY >= bound for found, bound in zip(least, cubic.least(0.1), strict=True))
        assert norm(here) <= cubic.hessian(0.0) * SLACK + TINY
        assert norm(there) <= cubic.hessian(0.7) * SLACK + TINY


@pytest.mark.claim("Bottleneck as a product", verdict="holds")
@given(seeds, st.integers(1, 4), st.booleans())
def test_a_unit_with_one_weight_attains_the_bound_on_the_hessian_and_a_step_of_it_that_in_a_ball(seed, m, upper):
    u, v = gaussian(seed, 2, m)
    (v if upper else u).zero_()
    second = hess(lambda p: (p[0] * p[1] ** 2).sum() / m**0.5)(torch.stack([u, v]))
    c = cubics([v, u, v, u], 1.0)[1]
    assert norm(second.reshape(2 * m, -1)) == pytest.approx(c.hessian(0.0), rel=1e-10)
    largest = (u.abs() + v.abs()).argmax()
    for w in (u, v):
        w[largest] += math.copysign(0.2, w[largest])
    assert cubics([v, u, v, u], 1.0)[1].hessian(0.0) == pytest.approx(c.hessian(0.2 * 2**0.5), rel=1e-10)


@pytest.mark.claim("Liu Theorem 4.1", verdict="fails")
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


@pytest.mark.claim("Liu Eq. 124, corrected", "Liu Eq. 125, corrected", verdict="holds")
@given(seeds, st.integers(1, 6), radii)
def test_the_deviations_of_two_sums_and_the_size_of_one_of_three_factors(seed, m, radius):
    s, t = (radius * a / a.norm() for a in gaussian(seed, 2, m))
    assert (s * t).norm() <= radius**2 * SLACK and (t**2).norm() <= radius**2 * SLACK
    assert (s * t**2).sum().abs() <= radius**3 * SLACK


@pytest.mark.claim("Liu Eq. 124", "Liu Eq. 125", verdict="fails")
@pytest.mark.parametrize("delta", [0.01, 0.1, 0.5])
def test_in_a_small_ball_tails_are_heavier_than_printed_and_in_a_large_one_the_sum_of_three_factors(delta):
    radius = 0.1  # t = (R, 0, ...): the sum is x_1 R^2
    seen = radius**2 * gaussian(0, 20_000).abs() > math.log(4 / delta) * radius**4
    assert seen.double().mean().item() > 0.9 > delta
    s = t = exact([2.0, 0.0])
    assert (s * t**2).sum() == 8 > 2 == s.norm()


# ---- Section 5: optimisation ----------------------------------------------------------------------------------------


@pytest.mark.claim("Liu Section 5, a kernel as well conditioned", verdict="holds if")
@given(seeds, st.integers(1, 6), st.sampled_from([1.0, 1e3]), st.floats(0.1, 3), st.floats(1, 4))
def test_the_condition_number_of_the_output_is_at_most_a_square_of_slopes_times_that_of_f(seed, n, kappa, low, ratio):
    q = orthogonal(seed, n)
    kernel = q * torch.linspace(1, kappa, n).double() @ q.mT
    first = low * (1 + (ratio - 1) * torch.rand(n, generator=torch.Generator().manual_seed(seed)).double())
    tilde = output_kernel((kernel + kernel.mT) / 2, first[:, None, None])
    values, own = torch.linalg.eigvalsh(tilde), torch.linalg.eigvalsh(kernel)
    assert values[-1] / values[0] <= own[-1] / own[0] * (first.max() / first.min()) ** 2 * (1 + 1e-7)
    assert values[0] >= low**2 * own[0] * (1 - 1e-7)
    slope = exact([1.0, 1000.0])  # phi' = 1 + z^2 at z = 0 and about 31.6: without an upper bound
    assert torch.linalg.cond(output_kernel(torch.eye(2).double(), slope[:, None, None])).item() == pytest.approx(1e6)


@pytest.mark.claim("Liu Theorem 5.1", verdict="holds if")
@pytest.mark.claim("Descent where the kernel stays definite", verdict="holds")
def test_rate_and_radius_by_hand():
    result = liu_theorem_5_1(exact([[8.0, 0.0], [0.0, 18.0]]), exact([3.0, 4.0]), 0.5)  # mu = 4, rho = 1/2, |r_0| = 5
    assert (result.radius, result.rate) == pytest.approx((10.0, 1.0), rel=1e-12)
    assert 0.9 ** result.steps(0.1, 7.0) == pytest.approx(1 / 7, rel=1e-12)


@pytest.mark.claim("Liu Theorem 5.1", verdict="holds if")
@pytest.mark.parametrize("seed", range(2))
def test_descent_converges_at_the_rate_of_the_smallest_eigenvalue(seed):
    n, d = 2 + seed % 3, 1 + seed % 2  # samples, no two of them close, with an entry of one for the biases
    spread = torch.linspace(-1.5, 1.5, n).double()[:, None] * (1 + gaussian(seed, 1, d).abs())
    turned = spread * gaussian(seed + 100, 1, d).sign() + 0.1 * gaussian(seed + 200, n, d)
    x, y = torch.cat([turned, torch.ones(n, 1).double()], 1), gaussian(seed + 300, n, 1)
    network = shallow(10_000, 1, inputs=d + 1, activation=torch.tanh, seeds=[seed])

    def residual():  # of an output whose slope is between one half and three halves
        f = network(x)[0]
        return f + torch.sin(f) / 2 - y

    kernel, start = network.kernel(x)[0], [w.detach().clone() for w in network.weights]
    rate = liu_theorem_5_1(kernel, residual().flatten().detach(), 0.5)
    eta = 0.5 / (2 * torch.linalg.eigvalsh(kernel)[-1].item())
    descent, losses = torch.optim.SGD(network.parameters(), lr=eta), []
    for step in range(101):
        loss = residual().square().sum() / 2
        losses.append(loss.item())
        if step:
            assert losses[-1] <= (1 - eta * rate.rate) * losses[-2]
            assert losses[-1] <= (1 - eta * rate.rate) ** step * losses[0]
        if step % 10 == 9:
            assert torch.linalg.eigvalsh(network.kernel(x)[0])[0] >= rate.rate / 0.5**2
        descent.zero_grad()
        loss.backward()
        descent.step()
    distance = sum((w - w0).square().sum() for w, w0 in zip(network.weights, start, strict=True)) ** 0.5
    assert distance <= rate.radius
    assert losses[min(100, math.ceil(rate.steps(eta, 2.0)))] <= losses[0] / 2 or rate.steps(eta, 2.0) > 100


@pytest.mark.claim("Descent where the kernel stays definite", verdict="holds")
@given(seeds, st.integers(1, 3), st.floats(0.3, 2))
def test_descent_on_a_model_with_a_definite_kernel_stays_within_the_radius(seed, n, low):
    q, y = orthogonal(seed, n + 2)[:, :n], gaussian(seed + 2, n)
    start = w = gaussian(seed + 1, n + 2)

    def residual(w):  # of a model with slopes between low and 3 low, kernel low^2 to 9 low^2
        z = w @ q
        return low * (2 * z + torch.sin(z)) - y

    first = residual(start)
    rate = liu_theorem_5_1(2 * low**2 * torch.eye(n).double(), first, 1.0)  # mu = low^2
    eta, losses, way = 1 / (9 * low**2 + low * first.norm().item()), [(first @ first).item() / 2], 0.0
    for _ in range(100):
        step = eta * q @ (low * (2 + torch.cos(w @ q)) * residual(w))
        w, way = w - step, way + step.norm().item()
        losses.append(residual(w).square().sum().item() / 2)
        assert losses[-1] <= (1 - eta * rate.rate) * losses[-2] * SLACK + 1e-25
    assert (w - start).norm() <= way * SLACK <= rate.radius * SLACK**2 + TINY
    gone = 1 - math.sqrt(losses[-1] / losses[0]) if losses[0] else 0.0
    assert way <= rate.radius * gone * SLACK + TINY  # the steps add up to a share of the radius, as in the proof


# ---- Section 4: an output that is not linear ------------------------------------------------------------------------

OUTPUTS = [swish, torch.sigmoid, torch.sin, torch.nn.functional.softplus, identity, half_square]


def scalar(m, seed, x):
    """A network with one hidden layer, biases and one output, as a function of its weights, and weights for it."""

    def f(theta):
        w, b, v = theta.split(m)
        return v @ torch.tanh(w * x + b) / m**0.5

    return f, gaussian(seed, 3 * m)


@pytest.mark.claim("Liu Eq. 27", verdict="holds")
@pytest.mark.parametrize("phi", OUTPUTS)
@pytest.mark.parametrize("m, n", [(1, 1), (5, 4)])
def test_the_kernel_of_the_output_is_that_of_f_times_slopes(m, n, phi):
    network, x = shallow(m, 2, activation=torch.tanh, seeds=[m]), gaussian(n, n, 2)
    first = Entrywise(phi).slopes(network(x)[0])
    kernel = GaussNewton(network, x, output=lambda y: y[0]).tangent_kernel()
    expected = GaussNewton(network, x, output=lambda y: phi(y[0])).tangent_kernel()
    atol = 1e-10 * (1 + norm(expected))
    assert torch.allclose(output_kernel(kernel, first), expected, atol=atol)
    squares = first.diagonal(dim1=1, dim2=2).flatten() ** 2
    assert torch.allclose(expected.diagonal(), squares * kernel.diagonal(), atol=atol)


def change_floor(before, after, slope, new_slope):
    """A - B, from the diagonal of the kernel of f at two points and the slopes of the output there."""
    return abs(new_slope**2 - slope**2) * before - new_slope**2 * abs(after - before)


@pytest.mark.claim("Liu Section 4, change of the kernel", verdict="holds")
@given(seeds, st.integers(1, 5), inputs, st.sampled_from(OUTPUTS), st.sampled_from([0.0, 0.1, 1.0, 10.0]))
def test_the_kernel_of_the_output_changes_at_least_by_a_minus_b(seed, m, x, phi, size):
    f, start = scalar(m, seed, x)
    kernels, first, tilde = [], [], []
    for w in (start, start + size * gaussian(seed + 1, 3 * m)):
        kernels.append(torch.func.grad(f)(w).square().sum().item())
        first.append(slopes(phi, f(w).item())[0])
        tilde.append(torch.func.grad(lambda w: phi(f(w)))(w).square().sum().item())
    assert abs(tilde[1] - tilde[0]) >= change_floor(*kernels, *first) - TINY * (1 + sum(tilde))
    assert change_floor(2.0, 2.0, 1.0, 3.0) == 3**2 * 2 - 1**2 * 2  # attained by a kernel that does not move


@pytest.mark.claim("Liu Section 4, term A, corrected", verdict="holds")
@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(0, 5), st.sampled_from([swish, torch.exp, half_square]))
def test_the_squared_slope_changes_on_the_way_to_a_label_where_slopes_are_monotone(start, end, kernel, phi):
    if phi is half_square:
        start, end = abs(start), abs(end)  # the slope is z
    (a, bend_a), (b, bend_b) = (slopes(phi, z) for z in (start, end))
    bend = min(bend_a, bend_b)  # least in between too: that of swish has one maximum, that of the others none
    assert bend > 0 and min(a, b) >= 0
    floor, least = change_floor(kernel, kernel, a, b), bend * (a + b) * abs(start - end) * kernel  # B = 0
    assert floor >= least * (1 - 1e-9) - TINY
    assert phi is not half_square or math.isclose(floor, least, rel_tol=1e-9, abs_tol=TINY)


def late(z):
    """Twice differentiable and not linear, but only where z > 100."""
    return z + (z - 100).clamp_min(0) ** 3


@pytest.mark.claim("Liu Section 4, a linear output is necessary", "Liu Section 4, term A", verdict="fails")
@pytest.mark.claim("Liu Section 4, a Hessian of order one", "Liu Remark 4.1", verdict="fails")
@pytest.mark.claim("Liu Table 1, non-linear output layer", verdict="fails")
@given(seeds, st.sampled_from([0.5, 3.0]))
def test_an_output_that_is_not_linear_elsewhere_is_linear_in_the_whole_ball(seed, radius):
    f, start = scalar(200, seed, 1.0)
    step = gaussian(seed + 1, 600)
    for size in (0.0, 0.5, 1.0):
        w = start + radius * size * step / step.norm()
        gradients = [torch.func.grad(g) for g in (f, lambda w: late(f(w)))]
        curved = [torch.func.grad(lambda w, g=g: g(w) @ step)(w) for g in gradients]  # second derivative times a step
        assert torch.equal(*(g(w) for g in gradients)) and torch.equal(*curved)
    assert start[400:].norm() + radius < 100  # |f| <= |v| at all points of the ball, as |tanh| < 1
    assert slopes(late, 101.0)[1] > 0


@pytest.mark.claim("Liu Eq. 28", "Liu Eq. 29", verdict="holds")
@pytest.mark.claim("Liu Section 4, a linear output is necessary, corrected", verdict="holds")
@given(seeds, st.integers(1, 20), inputs, st.sampled_from([*OUTPUTS, torch.exp]))
def test_the_hessian_of_the_output_has_two_terms_and_its_norm_is_within_one_of_the_other(seed, m, x, phi):
    f, w = scalar(m, seed, x)
    g, h, tilde = torch.func.grad(f)(w), hess(f)(w), hess(lambda w: phi(f(w)))(w)
    first, second = slopes(phi, f(w).item())
    expected = second * torch.outer(g, g) + first * h
    assert torch.allclose(tilde, expected, atol=1e-10 * (1 + norm(expected)))
    bent = abs(second) * (g @ g).item()
    assert abs(norm(tilde) - bent) <= abs(first) * norm(h) * SLACK + TINY * (1 + bent)
    g, h = exact([1.0, 1.0]), exact([[0.0, 1.0], [1.0, 0.0]])  # f = w_1 w_2 attains both sides
    assert norm(3 * torch.outer(g, g) + h) == pytest.approx(7) and norm(3 * torch.outer(g, g) - h) == pytest.approx(5)


@pytest.mark.claim("Liu Section 4, lazy training", verdict="holds")
@given(seeds, st.sampled_from([0.5, 1.0, 2.0]))
def test_the_same_change_of_weights_leaves_one_kernel_and_moves_the_other(seed, x):
    f, w = scalar(20_000, seed, x)
    g = torch.func.grad(f)(w)
    end = w + 3 * g / g.norm()  # each weight by O(1/sqrt m)
    assert (end - w).abs().max() < 0.15
    changes = []
    for function in (f, lambda w: torch.exp(f(w) / 2)):
        before, after = (torch.func.grad(function)(p).square().sum() for p in (w, end))
        changes.append((abs(after - before) / before).item())
    assert changes[0] < 0.25 and changes[1] > 5


# ---- Section 6, appendix B and Table 1 ------------------------------------------------------------------------------


@pytest.mark.claim("Liu Section 6, swish as an instance", verdict="fails")
def test_the_slope_of_swish_has_a_zero():
    before, zero, after = (slopes(swish, -12.78464542761074 + z)[0] for z in (-5, 0, 5))
    assert before < 0 < after and abs(zero) < 1e-12


@pytest.mark.claim("A softmax that is sure", verdict="holds")
@given(seeds, st.integers(1, 5), st.integers(2, 4), st.sampled_from([0.1, 1.0, 10.0, 40.0]))
def test_the_kernel_of_a_softmax_vanishes_with_the_loss(seed, n, k, size):
    f, labels = size * gaussian(seed, n, k), torch.randint(k, (n,), generator=torch.Generator().manual_seed(seed))
    y, a = torch.nn.functional.one_hot(labels, k).double(), gaussian(seed + 1, n * k, n * k)
    kernel, doubt = a @ a.mT, (1 - (Softmax().outputs(f) * y).sum(-1)).max().item()
    tilde = output_kernel(kernel, Softmax().slopes(f))
    for measure in (norm, torch.linalg.matrix_norm):
        assert measure(tilde) <= 4 * doubt**2 * measure(kernel) * SLACK + 1e-14
    assert doubt <= n * Softmax().loss(f, y) * SLACK + 1e-15


@pytest.mark.claim("Liu Appendix B, training of the bottleneck", verdict="fails")
@given(seeds, st.integers(1, 5), st.integers(1, 5), st.floats(0, 20), st.floats(-3, 3))
def test_without_biases_the_network_is_homogeneous_in_its_input(seed, m, narrow_width, scale, x):
    network = bottleneck(m, narrow_width, inputs=1, seeds=[seed])
    assert torch.allclose(network(exact([[scale * x]])), scale * network(exact([[x]])), rtol=1e-10, atol=1e-10)


def wide(m, seed):
    return shallow(m, 1, activation=torch.tanh, seeds=[seed])


def squeezed(m, seed):
    return bottleneck(m, 1, 1, activation=torch.tanh, seeds=[seed])


@pytest.mark.claim("Liu Table 1, linear output layer", "Liu Table 1, bottleneck", verdict="holds")
@pytest.mark.claim("Liu Table 1, non-linear output layer", verdict="fails")
@pytest.mark.parametrize(
    ("build", "phi", "runs", "low", "high"),
    [(wide, identity, 8, -0.55, -0.3), (wide, torch.exp, 12, -0.25, 0.25), (squeezed, identity, 16, -0.2, 0.2)],
)
def test_exponents_of_the_width_of_the_hessian_and_of_the_kernel(build, phi, runs, low, high):
    x, norms, kernels = exact([[1.0, 1.0]]), [], []
    for m in (64, 4096):
        networks = [build(m, seed) for seed in range(runs)]
        ends = [hessian_ends(net, x, output=lambda y: phi(y[0]), tolerance=1e-3) for net in networks]
        norms.append(sum(end.norm for end in ends) / runs)
        kernels.append(sum(net.kernel(x).item() for net in networks) / runs)
    assert low < math.log(norms[1] / norms[0]) / math.log(64) < high
    assert abs(math.log(kernels[1] / kernels[0])) / math.log(64) < (0.2 if build is squeezed else 0.1)
    assert build is wide or norms[1] > 0.3

"""Liu, Zhu and Belkin 2020, sections 4 to 6, Table 1 and appendices B, H, I.9: where the kernel is not constant."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from gnlib.chapters.shared.hessian import hessian_ends
from gnlib.chapters.when_the_kernel_moves.bottleneck import (
    ball_floor,
    cubics,
    limit_norm,
    liu_theorem_4_1,
    vanishing_probability,
)
from gnlib.chapters.when_the_kernel_moves.heads import Entrywise, Softmax, output_kernel, swish
from gnlib.chapters.when_the_kernel_moves.networks import StackedNetworks, bottleneck, half_square, identity, shallow
from gnlib.chapters.when_the_kernel_moves.nonlinear_output import (
    change_floor,
    liu_eq_29,
    liu_theorem_5_1,
    output_condition,
)
from gnlib.gauss_newton import tangent_kernel
from tests.strategies import exact, gaussian, hundreds, orthogonal, seeds

SLACK = 1 + 1e-9
TINY = 1e-11
OUTPUTS = [swish, torch.sigmoid, torch.sin, torch.nn.functional.softplus, identity, half_square]
inputs = st.sampled_from([-2.0, -0.3, 0.0, 0.5, 1.0, 3.0])
radii = st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0, 3.0])


def norm(matrix):
    return torch.linalg.matrix_norm(matrix, 2).item()


def hess(f, w):
    return torch.func.jacrev(torch.func.jacrev(f))(w)


def slopes(phi, z):
    """First and second derivative of a function of one number."""
    z = exact(z)
    return torch.func.grad(phi)(z).item(), torch.func.grad(torch.func.grad(phi))(z).item()


def scalar(m, seed, x, sigma=torch.tanh):
    """A network with one hidden layer, biases and one output, as a function of its weights, and weights for it."""

    def f(theta):
        w, b, v = theta.split(m)
        return v @ sigma(w * x + b) / m**0.5

    return f, gaussian(seed, 3 * m)


def narrow(theta, x):
    """Eq. 31, written out once more: one unit in the bottleneck, squares above and below."""
    w1, w2, w3, w4 = theta.view(4, -1)
    root = w1.shape[0] ** 0.5
    return (w4 @ (w3 * (w2 @ (w1 * x).square() / 2 / root)).square() / 2) / root


# ------------------------------------------------------------------------------------------- section 4: output layer


@pytest.mark.claim("Liu Eq. 27", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 5), st.integers(1, 4), st.sampled_from(OUTPUTS))
def test_the_kernel_of_the_output_is_that_of_f_times_slopes(seed, m, n, phi):
    network, x = shallow(m, 2, activation=torch.tanh, seeds=[seed]), gaussian(seed, n, 2)
    head = Entrywise(phi)
    kernel = tangent_kernel(network, x, output=lambda y: y[0])
    expected = tangent_kernel(network, x, output=lambda y: phi(y[0]))
    by_slopes = output_kernel(kernel, head.slopes(network(x)[0]))
    assert torch.allclose(by_slopes, expected, atol=1e-10 * (1 + norm(expected)))
    first = torch.stack([torch.diagonal(s) for s in head.slopes(network(x)[0])]).flatten()
    assert torch.allclose(expected.diagonal(), first**2 * kernel.diagonal(), atol=1e-10 * (1 + norm(expected)))


@pytest.mark.claim("Liu Section 4, change of the kernel", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 5), inputs, st.sampled_from(OUTPUTS), st.sampled_from([0.0, 0.1, 1.0, 10.0]))
def test_the_kernel_of_the_output_changes_at_least_by_a_minus_b(seed, m, x, phi, size):
    f, start = scalar(m, seed, x)
    end = start + size * gaussian(seed + 1, 3 * m)
    kernels, first, tilde = [], [], []
    for w in (start, end):
        kernels.append(torch.func.grad(f)(w).square().sum()[None])
        first.append(exact([slopes(phi, f(w).item())[0]]))
        tilde.append(torch.func.grad(lambda w: phi(f(w)))(w).square().sum())
    floor = change_floor(*kernels, *first).item()
    assert (tilde[1] - tilde[0]).abs() >= floor - TINY * (1 + tilde[0] + tilde[1])


@pytest.mark.claim("Liu Section 4, change of the kernel", verdict="holds")
def test_the_bound_on_the_change_is_attained_by_a_kernel_that_does_not_move():
    floor = change_floor(exact([2.0]), exact([2.0]), exact([1.0]), exact([3.0]))
    assert floor.item() == 16 == 3**2 * 2 - 1**2 * 2
    floor = change_floor(exact([2.0]), exact([1.5]), exact([1.0]), exact([3.0]))  # and by one that falls as slopes rise
    assert floor.item() == 11.5 == 3**2 * 1.5 - 1**2 * 2


@pytest.mark.claim("Liu Section 4, term A, corrected", verdict="holds")
@hundreds
@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(0, 5), st.sampled_from([swish, torch.exp, half_square]))
def test_the_squared_slope_changes_on_the_way_to_a_label_where_slopes_are_monotone(start, end, kernel, phi):
    if phi is half_square:
        start, end = abs(start), abs(end)  # the slope is z
    (a, bend_a), (b, bend_b) = (slopes(phi, z) for z in (start, end))
    bend = min(bend_a, bend_b)  # least in between too: that of swish has one maximum, that of the others none
    assert bend > 0 and min(a, b) >= 0
    floor = change_floor(exact([kernel]), exact([kernel]), exact([a]), exact([b])).item()  # B = 0
    least = bend * (a + b) * abs(start - end) * kernel
    assert floor >= least * (1 - 1e-9) - TINY
    if phi is half_square:
        assert math.isclose(floor, least, rel_tol=1e-9, abs_tol=TINY)


@pytest.mark.claim("Liu Section 4, term A", verdict="fails")
def test_a_cube_reaches_another_label_with_the_same_squared_slope():
    def cube(z):
        return z**3 / 3

    assert cube(1.0) != cube(-1.0)
    floor = change_floor(exact([1.0]), exact([1.0]), *(exact([slopes(cube, z)[0]]) for z in (1.0, -1.0)))
    assert floor.item() == 0
    assert change_floor(exact([1.0]), exact([1.0]), *(exact([slopes(cube, z)[0]]) for z in (1.0, -2.0))).item() == 15


def along(f, w, step):
    """Second derivative times a step."""
    return torch.func.grad(lambda w: torch.func.grad(f)(w) @ step)(w)


def late(z):
    """Twice differentiable and not linear, but only where z > 100."""
    return z + (z - 100).clamp_min(0) ** 3


@pytest.mark.claim("Liu Section 4, a linear output is necessary", verdict="fails")
@pytest.mark.claim("Liu Section 4, term A", verdict="fails")
@pytest.mark.claim("Liu Section 4, a Hessian of order one", verdict="fails")
@pytest.mark.claim("Liu Remark 4.1", verdict="fails")
@pytest.mark.claim("Liu Table 1, non-linear output layer", verdict="fails")
@hundreds
@given(seeds, st.sampled_from([0.5, 3.0]))
def test_an_output_that_is_not_linear_elsewhere_is_linear_in_the_whole_ball(seed, radius):
    f, start = scalar(200, seed, 1.0)
    for size in (0.0, 0.5, 1.0):
        step = gaussian(seed + 1, 600)
        w = start + radius * size * step / step.norm()
        same = torch.func.grad(lambda w: late(f(w)))(w)
        assert torch.equal(same, torch.func.grad(f)(w))
        assert torch.equal(along(lambda w: late(f(w)), w, step), along(f, w, step))
    reach = start[400:].norm() + radius  # |f| <= |v| at all points of the ball, as |tanh| < 1
    assert reach < 100
    assert slopes(late, 101.0)[1] > 0


@pytest.mark.claim("Liu Section 4, a linear output is necessary, corrected", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 20), inputs, st.sampled_from([*OUTPUTS, torch.exp]))
def test_the_two_are_apart_by_the_slope_times_the_hessian_of_f_at_most(seed, m, x, phi):
    f, w = scalar(m, seed, x)
    first, second = slopes(phi, f(w).item())
    kernel, own = torch.func.grad(f)(w).square().sum().item(), norm(hess(f, w))
    apart = abs(norm(hess(lambda w: phi(f(w)), w)) - abs(second) * kernel)
    assert apart <= abs(first) * own * SLACK + TINY * (1 + abs(second) * kernel)


@pytest.mark.claim("Liu Section 4, a linear output is necessary, corrected", verdict="holds")
@pytest.mark.parametrize("phi", [swish, torch.sin, torch.nn.functional.softplus])
@pytest.mark.parametrize("seed", range(3))
def test_where_the_output_is_bent_the_hessian_tends_to_its_curvature_times_the_kernel(seed, phi):
    sample, apart = exact([[1.0, 1.0]]), []
    for m in (100, 10_000):
        network = shallow(m, 1, activation=torch.tanh, seeds=[seed])
        tilde = hessian_ends(network, sample, output=lambda y: phi(y[0]), tolerance=1e-4).norm
        second = slopes(phi, network(sample).item())[1]
        apart.append(abs(tilde - abs(second) * network.kernel(sample).item()))
    assert apart[1] < 0.05 and apart[1] < apart[0]


@pytest.mark.claim("Liu Section 4, a linear output is necessary, corrected", verdict="holds")
@pytest.mark.parametrize("m", [1.0, 5.0, 20.0])
def test_slopes_without_bound_keep_the_two_apart(m):
    def f(w):  # H = 1/m, K = 1, and f = m at w = 0
        return m + w + w**2 / (2 * m)

    zero = exact(0.0)
    own = hess(f, zero).item()
    tilde = hess(lambda w: torch.exp(f(w)), zero).item()
    bent = slopes(torch.exp, m)[1] * torch.func.grad(f)(zero).item() ** 2
    assert own == 1 / m
    assert math.isclose(tilde - bent, slopes(torch.exp, m)[0] * own, rel_tol=1e-9)  # e^m / m, though H tends to zero
    assert tilde - bent > 2.5


@pytest.mark.claim("Liu Eq. 28", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 4), inputs, st.sampled_from(OUTPUTS))
def test_the_hessian_of_the_output_has_two_terms(seed, m, x, phi):
    f, w = scalar(m, seed, x)
    g, h = torch.func.grad(f)(w), hess(f, w)
    first, second = slopes(phi, f(w).item())
    expected = second * torch.outer(g, g) + first * h
    assert torch.allclose(hess(lambda w: phi(f(w)), w), expected, atol=1e-10 * (1 + norm(expected)))


@pytest.mark.claim("Liu Eq. 29", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 4), inputs, st.sampled_from(OUTPUTS))
def test_the_norm_is_within_one_term_of_the_other(seed, m, x, phi):
    f, w = scalar(m, seed, x)
    g, h = torch.func.grad(f)(w), hess(f, w)
    low, high = liu_eq_29(g.norm().item(), norm(h), *slopes(phi, f(w).item()))
    assert low - TINY <= norm(hess(lambda w: phi(f(w)), w)) <= high + TINY


@pytest.mark.claim("Liu Eq. 29", verdict="holds")
def test_a_product_of_two_numbers_attains_both_sides():
    w = exact([1.0, 1.0])  # f = w_1 w_2 with |grad f|^2 = 2 and H of eigenvalues 1 and -1
    g, h = torch.func.grad(torch.prod)(w), hess(torch.prod, w)
    for first, second in ((1.0, 3.0), (-1.0, 3.0)):
        low, high = liu_eq_29(g.norm().item(), norm(h), first, second)
        value = norm(second * torch.outer(g, g) + first * h)
        assert value == pytest.approx(high if first > 0 else low, rel=1e-12)


@pytest.mark.claim("Liu Section 4, a Hessian of order one", verdict="fails")
def test_the_hessian_of_swish_does_not_shrink_with_the_width():
    sample = exact([[1.0, 1.0]])
    norms = []
    for m in (100, 1000, 10_000):
        networks = [shallow(m, 1, activation=torch.tanh, seeds=[seed]) for seed in range(6)]
        ends = [hessian_ends(net, sample, output=lambda y: swish(y[0]), tolerance=1e-3) for net in networks]
        norms.append(sum(end.norm for end in ends) / len(ends))
    assert norms[2] > 0.5 * norms[1] > 0.1 * norms[0] and norms[2] > 0.03


@pytest.mark.claim("Liu Section 4, a Hessian of order one", verdict="fails")
@hundreds
@given(seeds, st.integers(1, 4), inputs)
def test_at_a_point_of_inflection_only_the_hessian_of_f_is_left(seed, m, x):
    f, w = scalar(m, seed, x)
    w[2 * m :] -= (
        f(w) * m**0.5 * torch.tanh(w[:m] * x + w[m : 2 * m]) / torch.tanh(w[:m] * x + w[m : 2 * m]).square().sum()
    )
    assert abs(f(w)) < 1e-12
    tilde = hess(lambda w: torch.sigmoid(f(w)), w)
    assert torch.allclose(tilde, hess(f, w) / 4, atol=1e-10)


@pytest.mark.claim("Liu Remark 4.1", verdict="fails")
def test_the_kernel_and_the_squared_gradient_by_hidden_values_have_a_ratio_that_does_not_depend_on_the_width():
    ratios = []
    for m in (100, 10_000, 1_000_000):
        w, b, v = gaussian(0, 3, m)
        slope = 1 - torch.tanh(w + b) ** 2
        kernel = torch.tanh(w + b).square().mean() + 2 * (v * slope).square().mean()
        ratios.append((kernel / (v / m**0.5).square().sum()).item())
        assert (v / m**0.5).abs().max() < 6 / m**0.5
    assert max(ratios) < 1.5 * min(ratios)
    assert slopes(torch.sigmoid, 0.0)[1] == 0  # where the first term is none at all


@pytest.mark.claim("Liu Section 4, lazy training", verdict="holds")
@hundreds
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


# -------------------------------------------------------------------------------------------- section 4: bottlenecks


@pytest.mark.claim("Liu Eq. 30", verdict="holds if")
@hundreds
@given(seeds, st.integers(1, 6), st.floats(-3, 3), st.sampled_from([torch.tanh, torch.sigmoid, half_square]))
def test_the_221_norm_behind_a_bottleneck_is_a_sum(seed, m, a, sigma):
    w = gaussian(seed, m)
    second = hess(lambda a: sigma(w * a), exact(a))
    by_formula = torch.stack([u**2 * abs(slopes(sigma, (u * a).item())[1]) for u in w]).sum()
    assert torch.isclose(second.abs().sum(), by_formula, atol=TINY)


@pytest.mark.claim("Liu Eq. 30", verdict="holds if")
def test_the_sum_is_of_the_order_of_the_width_unless_the_value_is_an_inflection():
    for a, order in ((1.0, True), (0.0, False)):
        sums = [
            (w**2 * 2 * (torch.tanh(w * a) * (1 - torch.tanh(w * a) ** 2)).abs()).mean()
            for w in map(gaussian, (0, 1), (10**3, 10**5))
        ]
        assert all((0.1 < value < 1) == order and (value == 0) != order for value in sums)


@pytest.mark.claim("Bottleneck as a product", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 4), inputs)
def test_the_network_of_theorem_4_1_is_a_product_of_cubics(seed, m, x):
    theta = gaussian(seed, 4 * m)
    h, c = cubics(list(theta.view(4, m)), x)
    assert narrow(theta, x).item() == pytest.approx(c.value * h.value**2 / 2, rel=1e-10, abs=1e-14)
    network = StackedNetworks(
        [
            theta[:m].view(1, m, 1),
            theta[m : 2 * m].view(1, 1, m),
            theta[2 * m : 3 * m].view(1, m, 1),
            theta[3 * m :].view(1, 1, m),
        ],
        [1, m**-0.5, 1, m**-0.5],
        [half_square, identity, half_square],
    )
    assert network(exact([[x]])).item() == pytest.approx(narrow(theta, x).item(), rel=1e-10, abs=1e-14)

    def factors(theta):
        w1, w2, w3, w4 = theta.view(4, m)
        return x**2 * (w2 @ w1**2) / (2 * m**0.5), w4 @ w3**2 / m**0.5

    for index, cubic in enumerate((h, c)):
        g, second = (
            torch.func.grad(lambda t, i=index: factors(t)[i])(theta),
            hess(lambda t, i=index: factors(t)[i], theta),
        )
        assert g.norm().item() == pytest.approx(cubic.gradient, rel=1e-10, abs=1e-14)
        assert norm(second) <= cubic.hessian(0.0) * SLACK + TINY
        step = gaussian(seed + 1, 4 * m)
        far = hess(lambda t, i=index: factors(t)[i], theta + 0.7 * step / step.norm())
        assert norm(far) <= cubic.hessian(0.7) * SLACK + TINY


def cubic(u, v):
    """The cubic c, and its gradient, as functions of two vectors."""
    root = u.shape[-1] ** 0.5
    return (u * v**2).sum(-1) / root, torch.cat([v**2, 2 * u * v], -1) / root


@pytest.mark.claim("Bottleneck as a product", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 4), st.sampled_from([0.01, 0.1, 0.5]), st.booleans())
def test_values_and_gradients_of_a_cubic_are_above_their_floors_in_a_ball(seed, m, radius, steep):
    u, v = gaussian(seed, 2, m)
    if steep:  # one unit without a gradient that bends against the others
        u[-1], v[-1] = -100 * (u @ v**2).sign(), 0.0
    _, c = cubics([v, u, v, u], 1.0)
    point = torch.cat([u, v])
    steps = torch.cat([torch.eye(2 * m).double(), -torch.eye(2 * m).double(), -point[None], gaussian(seed, 50, 2 * m)])
    ends = point + radius * steps / steps.norm(dim=1, keepdim=True)
    value, gradient = cubic(ends[:, :m], ends[:, m:])
    assert value.abs().min() * SLACK + TINY >= c.least(radius)[0]
    assert gradient.norm(dim=1).min() * SLACK + TINY >= c.least(radius)[1]


@pytest.mark.claim("Bottleneck as a product", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 4), st.booleans())
def test_a_unit_with_one_weight_attains_the_bound_on_the_hessian(seed, m, upper):
    u, v = gaussian(seed, 2, m)
    (v if upper else u).zero_()
    second = hess(lambda p: cubic(*p.view(2, m))[0], torch.cat([u, v]))
    assert norm(second) == pytest.approx(cubics([v, u, v, u], 1.0)[1].hessian(0.0), rel=1e-10)


@pytest.mark.claim("Liu Eqs. 106 to 109", verdict="holds")
@hundreds
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
@hundreds
@given(seeds, st.integers(1, 50), inputs)
def test_the_values_of_the_first_layer_with_fourth_powers(seed, m, x):
    w = gaussian(seed, m)
    alpha = half_square(w * x)
    assert torch.isclose(alpha @ alpha, x**4 / 4 * (w**4).sum(), rtol=1e-12)
    assert alpha @ alpha * SLACK >= x**4 / 4 * (w @ w) ** 2 / m


@pytest.mark.claim("Liu Theorem 4.1", verdict="fails")
@hundreds
@given(seeds, st.integers(1, 6))
def test_the_hessian_falls_with_the_fourth_power_of_the_input_not_with_the_square(seed, m):
    theta = gaussian(seed, 4 * m)
    at_one = norm(hess(lambda t: narrow(t, 1.0), theta))
    constant, delta = 1e-3, 0.1  # however small they are
    bound = math.sqrt(3) / 8 * constant * delta**3
    x = min(1.0, math.sqrt(bound / at_one) / 2)
    assert norm(hess(lambda t: narrow(t, x), theta)) < bound * x**2


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


@pytest.mark.claim("Liu Theorem 4.1", verdict="fails")
def test_most_balls_contain_a_point_where_the_hessian_vanishes():
    radius, m, inside = 2.0, 1000, 0
    for seed in range(200):
        theta = gaussian(seed, 4 * m)
        end = zero_nearby(theta)
        h, c = cubics(list(end.view(4, m)), 1.0)
        assert abs(h.value) + abs(c.value) < 1e-12
        inside += (end - theta).norm().item() <= radius
    assert inside >= 190  # the theorem allows 2 delta + exp(-m / 16) of them, any delta: 1 - exp(-14 / 3) are seen
    assert vanishing_probability(radius) == pytest.approx(0.9906, abs=1e-4)


@pytest.mark.claim("Liu Theorem 4.1", verdict="fails")
@hundreds
@given(seeds, st.integers(1, 5), inputs)
def test_where_both_cubics_vanish_so_does_the_hessian(seed, m, x):
    theta = gaussian(seed, 4 * m)
    theta[m : 2 * m] = theta[3 * m :] = 0
    assert norm(hess(lambda t: narrow(t, x), theta)) == 0


@pytest.mark.claim("Liu Theorem 4.1, corrected", verdict="holds")
@pytest.mark.parametrize("offset", ["none", "first entries", "spread"])
@pytest.mark.parametrize("m", [20, 400])
def test_at_a_fixed_point_the_hessian_is_rarely_small(offset, m):
    failures, runs, delta, x = 0, 400, 0.2, 0.7
    shift = torch.zeros(4, m).double()
    if offset == "first entries":
        shift[:, 0] = 1.5
    elif offset == "spread":
        shift[:] = 3 / (4 * m) ** 0.5
    for seed in range(runs):
        w1, _, w3, w4 = gaussian(seed, 4, m) + shift
        alpha = (w1 * x) ** 2 / 2
        block = ((w4 * w3**2).sum().abs() * (alpha @ alpha) / m**1.5).item()  # no more than the norm of H
        failures += block < liu_theorem_4_1(x, delta)
    assert failures / runs <= delta + 2 * math.exp(-m / 16)
    far_above = sum(
        ((w[3] * w[2] ** 2).sum().abs() * (half_square(w[0] * x) ** 2).sum() / m**1.5).item()
        < 90 * liu_theorem_4_1(x, delta)
        for w in (gaussian(seed, 4, m) + shift for seed in range(runs))
    )
    assert far_above / runs > delta + 2 * math.exp(-400 / 16)  # and of this order


@pytest.mark.claim("Liu Theorem 4.1, corrected", verdict="holds")
@pytest.mark.parametrize("m", [1, 7, 1000])
@pytest.mark.parametrize("delta", [0.01, 0.2])
@pytest.mark.parametrize("x", [0.3, -1.0, 2.0])
def test_the_constant_is_the_product_of_two_bounds(m, delta, x):
    upper = math.sqrt(2 * math.pi) * delta * math.sqrt(m / 4) / 2  # |N(0, tau^2)| < t with 2 t / (sqrt(2 pi) tau)
    first = x**4 / 4 * (m / 2) ** 2 / m  # the values of the first layer where the squared weights add up to m/2
    assert math.isclose(liu_theorem_4_1(x, delta), upper * first / m**1.5, rel_tol=1e-12)
    density = math.erf(upper / math.sqrt(m / 4) / 2**0.5)  # the probability of [-t, t] if tau^2 = m / 4
    assert 0.98 * delta <= density <= delta  # so no larger t would do


@pytest.mark.claim("Theorem 4.1 in a whole ball", verdict="holds")
@hundreds
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


@pytest.mark.claim("Theorem 4.1 in a whole ball", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 200))
def test_in_a_ball_of_no_radius_the_floor_is_the_larger_of_two_entries(seed, m):
    h, c = cubics(list(gaussian(seed, 4, m)), 1.0)
    one = abs(h.value) * c.gradient * h.gradient
    other = abs(c.value) * max(h.gradient**2 - abs(h.value) * h.hessian(0.0), 0.0)
    assert ball_floor(h, c, 0.0) == pytest.approx(max(one, other), rel=1e-9, abs=1e-15)


@pytest.mark.claim("Theorem 4.1 in a whole ball", verdict="holds")
@pytest.mark.parametrize("radius", [0.0, 0.3])
def test_for_wide_networks_the_floor_is_nearly_the_limit(radius):
    for seed in range(5):
        m = 10**6
        w = gaussian(seed, 4, m)
        h, c = cubics(list(w), 1.0)
        distance = math.hypot(h.value / h.gradient, c.value / c.gradient)
        floor = ball_floor(h, c, radius)
        assert floor <= max(limit_norm(h.value / h.gradient, c.value / c.gradient), 1e-9) * 1.01
        nearer = ball_floor(h, c, 0.9 * distance)  # a step of that length towards the zero leaves a tenth of both
        assert nearer <= 1.1 * limit_norm(0.1 * h.value / h.gradient, 0.1 * c.value / c.gradient)
        if distance > radius + 0.1:
            assert floor >= 0.9 * 4.63 * (distance - radius) / 2**0.5


@pytest.mark.claim("Theorem 4.1 in a whole ball", verdict="holds")
def test_a_point_without_a_hessian_is_in_the_ball_as_often_as_the_limit_says():
    m, distances = 500, []
    for seed in range(1500):
        theta = gaussian(seed, 4 * m)
        h, c = cubics(list(theta.view(4, m)), 1.0)
        distances.append(math.hypot(h.value / h.gradient, c.value / c.gradient))
    for radius in (0.3, 0.7, 1.0, 1.5):
        share = sum(d <= radius for d in distances) / len(distances)
        assert share == pytest.approx(vanishing_probability(radius), abs=0.04)


@pytest.mark.claim("Limit of the Hessian of a bottleneck", verdict="holds")
def test_the_norm_tends_to_that_of_a_matrix_of_size_two():
    errors = []
    for m in (20, 300):
        error = 0.0
        for seed in range(4):
            theta = gaussian(seed, 4 * m)
            h, c = cubics(list(theta.view(4, m)), 1.0)
            value = norm_by_parts(theta, 1.0)
            assert h.gradient**2 == pytest.approx(7 / 4, rel=25 / m**0.5) and c.gradient**2 == pytest.approx(
                7, rel=25 / m**0.5
            )
            error += abs(value / limit_norm(h.value / h.gradient, c.value / c.gradient) - 1) / 4
        errors.append(error)
    assert errors[1] < 0.5 * errors[0] and errors[1] < 0.2


@pytest.mark.claim("Liu Lemma H.1, corrected", verdict="holds")
@pytest.mark.parametrize("m", [1, 5, 100])
@pytest.mark.parametrize("radius", [0.0, 0.5, 2.0])
def test_with_fixed_offsets_the_sum_is_rarely_small(m, radius):
    runs, constant = 4000, 0.1
    x, y, s, t = gaussian(0, runs, m), gaussian(1, runs, m), gaussian(2, m), gaussian(3, m)
    s, t = radius * s / s.norm(), radius * t / t.norm()
    sums = ((x + s) * (y + t) ** 2).sum(1).abs()
    for delta in (0.05, 0.2, 0.4):
        bound = 3**0.5 * constant * delta**3 * m**0.5  # without the terms that the paper takes off
        assert (sums < bound).double().mean() <= 2 * delta


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
@hundreds
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
@hundreds
@given(st.floats(0.01, 10), st.floats(1e-6, 0.99), st.floats(0.01, 1))
def test_the_tails_of_two_gaussian_sums(radius, delta, share):
    bound = radius**2 * math.sqrt(2 * math.log(4 / delta))
    deviation = share * radius**2  # at most R^2, which is attained where t has a single entry
    assert tail(bound, deviation) <= delta / 2
    if radius >= 1 and delta <= 4 * math.exp(-2):
        assert bound <= math.log(4 / delta) * radius**4 * SLACK  # there Eq. 124 is weaker, and holds


@pytest.mark.claim("Liu Eq. 124, corrected", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 6), radii)
def test_the_deviations_of_the_two_sums(seed, m, radius):
    s, t = gaussian(seed, 2, m)
    s, t = radius * s / s.norm(), radius * t / t.norm()
    assert (s * t).norm() <= radius**2 * SLACK and (t**2).norm() <= radius**2 * SLACK


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


@pytest.mark.claim("Liu Eq. 125, corrected", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 6), radii)
def test_a_sum_of_three_factors_is_at_most_the_cube_of_the_radius(seed, m, radius):
    s, t = gaussian(seed, 2, m)
    s, t = radius * s / s.norm(), radius * t / t.norm()
    assert (s * t**2).sum().abs() <= radius**3 * SLACK


# --------------------------------------------------------------------------------------------------------- table 1


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


# ------------------------------------------------------------------------------------------------------- section 5


@pytest.mark.claim("Liu Section 5, a kernel as well conditioned", verdict="holds if")
@hundreds
@given(seeds, st.integers(1, 6), st.sampled_from([1.0, 1e3]), st.floats(0.1, 3), st.floats(1, 4))
def test_the_condition_number_of_the_output_is_at_most_a_square_of_slopes_times_that_of_f(seed, n, kappa, low, ratio):
    q = orthogonal(seed, n)
    kernel = q * torch.linspace(1, kappa, n).double() @ q.mT
    first = low * (1 + (ratio - 1) * torch.rand(n, generator=torch.Generator().manual_seed(seed)).double())
    tilde = output_kernel((kernel + kernel.mT) / 2, first[:, None, None])
    values, own = torch.linalg.eigvalsh(tilde), torch.linalg.eigvalsh(kernel)
    assert values[-1] / values[0] <= output_condition((own[-1] / own[0]).item(), first[:, None, None]) * (1 + 1e-7)
    assert values[0] >= low**2 * own[0] * (1 - 1e-7)


@pytest.mark.claim("Liu Section 5, a kernel as well conditioned", verdict="holds if")
def test_a_slope_without_an_upper_bound_ruins_the_condition_number():
    slope = exact([1.0, 1000.0])  # phi' = 1 + z^2 at z = 0 and about 31.6: above rho = 1 everywhere
    tilde = output_kernel(torch.eye(2).double(), slope[:, None, None])
    assert torch.linalg.cond(tilde).item() == pytest.approx(1e6) == output_condition(1.0, slope[:, None, None])


def bent(z):
    """A slope between one half and three halves."""
    return z + torch.sin(z) / 2


def half_squared_loss(f, y):
    return (bent(f) - y).square().sum() / 2


@pytest.mark.claim("Liu Theorem 5.1", verdict="holds if")
@pytest.mark.claim("Descent where the kernel stays definite", verdict="holds")
def test_rate_and_radius_by_hand():
    result = liu_theorem_5_1(exact([[8.0, 0.0], [0.0, 18.0]]), exact([3.0, 4.0]), 0.5)  # mu = 4, rho = 1/2, |r_0| = 5
    assert result.rate == pytest.approx(1.0, rel=1e-12)
    assert result.radius == pytest.approx(10.0, rel=1e-12)
    assert 0.9 ** result.steps(0.1, 7.0) == pytest.approx(1 / 7, rel=1e-12)


def regression(seed):
    """Samples with an entry of one for the biases, no two of them close, and labels."""
    n, d = 2 + seed % 3, 1 + seed % 2
    spread = torch.linspace(-1.5, 1.5, n).double()[:, None] * (1 + gaussian(seed, 1, d).abs())
    turned = spread * gaussian(seed + 100, 1, d).sign() + 0.1 * gaussian(seed + 200, n, d)
    return torch.cat([turned, torch.ones(n, 1).double()], 1), gaussian(seed + 300, n, 1)


@pytest.mark.claim("Liu Theorem 5.1", verdict="holds if")
@pytest.mark.parametrize("seed", range(24))
def test_descent_converges_at_the_rate_of_the_smallest_eigenvalue(seed):
    x, y = regression(seed)
    network = shallow(10_000, 1, inputs=x.shape[1], activation=torch.tanh, seeds=[seed])
    f = network(x)[0].detach()
    kernel = network.kernel(x)[0]
    rate = liu_theorem_5_1(kernel, (bent(f) - y).flatten(), 0.5)
    eta = 0.5 / (2 * torch.linalg.eigvalsh(kernel)[-1].item())
    start = [w.detach().clone() for w in network.weights]
    losses = [half_squared_loss(f, y).item()]
    for _ in range(100):
        gradients = torch.autograd.grad(half_squared_loss(network(x)[0], y), list(network.weights))
        with torch.no_grad():
            for w, g in zip(network.weights, gradients, strict=True):
                w -= eta * g
        losses.append(half_squared_loss(network(x)[0], y).item())
        assert losses[-1] <= (1 - eta * rate.rate) * losses[-2]
        assert losses[-1] <= (1 - eta * rate.rate) ** (len(losses) - 1) * losses[0]
        if len(losses) % 10 == 0:
            assert torch.linalg.eigvalsh(network.kernel(x)[0])[0] >= rate.rate / 0.5**2
    distance = sum((w - w0).square().sum() for w, w0 in zip(network.weights, start, strict=True)) ** 0.5
    assert distance <= rate.radius
    assert losses[min(100, math.ceil(rate.steps(eta, 2.0)))] <= losses[0] / 2 or rate.steps(eta, 2.0) > 100


@pytest.mark.claim("Liu Theorem 5.1", verdict="holds if")
def test_equal_inputs_with_different_labels_are_never_fitted():
    network = shallow(1000, 1, activation=torch.tanh, seeds=[0])
    x, y = exact([[1.0, 1.0], [1.0, 1.0]]), exact([[1.0], [-1.0]])
    assert half_squared_loss(network(x)[0], y) >= 1  # (1 + 1) / 2 at best, whatever the weights
    with pytest.raises(ValueError, match="singular in double precision"):
        liu_theorem_5_1(network.kernel(x)[0], exact([1.0, -1.0]), 0.5)


@pytest.mark.claim("Descent where the kernel stays definite", verdict="holds")
@hundreds
@given(seeds, st.integers(1, 3), st.floats(0.3, 2))
def test_descent_on_a_model_with_a_definite_kernel_stays_within_the_radius(seed, n, low):
    p = n + 2
    q = orthogonal(seed, p)[:, :n]
    start, y = gaussian(seed + 1, p), gaussian(seed + 2, n)

    def model(w):  # slopes between low and 3 low, kernel low^2 to 9 low^2
        z = w @ q
        return low * (2 * z + torch.sin(z))

    def gradient(w):
        return q @ (low * (2 + torch.cos(w @ q)) * (model(w) - y))

    first = model(start) - y
    rate = liu_theorem_5_1(2 * low**2 * torch.eye(n).double(), first, 1.0)  # mu = low^2
    eta = 1 / (9 * low**2 + low * first.norm().item())
    w, losses, way = start, [(first @ first).item() / 2], 0.0
    for _ in range(100):
        step = eta * gradient(w)
        w, way = w - step, way + step.norm().item()
        residual = model(w) - y
        losses.append((residual @ residual).item() / 2)
        assert losses[-1] <= (1 - eta * rate.rate) * losses[-2] * SLACK + 1e-25
    assert (w - start).norm() <= way * SLACK <= rate.radius * SLACK**2 + TINY
    gone = 1 - math.sqrt(losses[-1] / losses[0]) if losses[0] else 0.0
    assert way <= rate.radius * gone * SLACK + TINY  # the steps add up to a share of the radius, as in the proof


# ------------------------------------------------------------------------------------------ section 6, appendix B


@pytest.mark.claim("Liu Section 6, swish as an instance", verdict="fails")
def test_the_slope_of_swish_has_a_zero():
    z = exact([[-12.78464542761074]])
    assert abs(Entrywise(swish).slopes(z).item()) < 1e-12
    assert Entrywise(swish).slopes(z - 5).item() < 0 < Entrywise(swish).slopes(z + 5).item()


@pytest.mark.claim("Liu Section 6, swish as an instance", verdict="fails")
def test_from_beyond_the_zero_descent_goes_the_wrong_way():
    f, label, rate = exact([[-14.0]]), 1.0, 1.0
    for _ in range(1000):
        error = swish(f) - label
        f = f - rate * error * Entrywise(swish).slopes(f)[..., 0]
    assert f.item() < -30 and (swish(f) - label).square().item() > 1


@pytest.mark.claim("A softmax that is sure", verdict="holds")
@hundreds
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


@pytest.mark.claim("A softmax that is sure", verdict="holds")
def test_a_softmax_kernel_is_singular_whatever_the_network():
    tilde = output_kernel(shallow(50, seeds=[0]).kernel(gaussian(0, 4, 2))[0], Softmax().slopes(gaussian(1, 4, 3)))
    for i in range(4):
        ones = torch.zeros(4, 3).double()
        ones[i] = 1
        assert (tilde @ ones.flatten()).abs().max() < 1e-12


@pytest.mark.claim("Liu Appendix B, training of the bottleneck", verdict="fails")
@hundreds
@given(seeds, st.integers(1, 5), st.integers(1, 5), st.floats(0, 20), st.floats(-3, 3))
def test_without_biases_the_network_is_homogeneous_in_its_input(seed, m, narrow_width, scale, x):
    network = bottleneck(m, narrow_width, inputs=1, seeds=[seed])
    assert torch.allclose(network(exact([[scale * x]])), scale * network(exact([[x]])), rtol=1e-10, atol=1e-10)


def least_loss(x, labels):
    """The least cross entropy of outputs that are |x| times one vector for each sign: a convex problem."""
    x, y = exact(x), torch.nn.functional.one_hot(torch.tensor(labels), 3).double()

    def loss(u):
        u = torch.tensor(u, dtype=torch.float64).view(2, 3).requires_grad_()
        value = Softmax().loss(x.abs()[:, None] * u[(x > 0).long()], y)
        return value.item(), torch.autograd.grad(value, u)[0].numpy().ravel()

    return minimize(loss, [0.0] * 6, jac=True).fun


@pytest.mark.claim("Liu Appendix B, training of the bottleneck", verdict="fails")
@pytest.mark.parametrize("seed", range(10))
def test_one_positive_sample_of_the_middle_class_keeps_the_loss_up(seed):
    floor = least_loss([1.0, 10.0], [0, 1])  # the smallest counterexample
    assert floor > 0.15
    network = bottleneck(5, 3, inputs=1, seeds=[seed])
    for scale in (0.1, 1.0, 3.0):
        value = Softmax().loss(scale * network(exact([[1.0], [10.0]])), exact([[[1.0, 0, 0], [0, 1.0, 0]]]))
        assert value.item() >= floor * (1 - 1e-6)

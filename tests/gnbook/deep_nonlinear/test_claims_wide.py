"""Infinitely wide networks: their kernel, finite ones beside it, its limit in depth, and how wide is enough."""

import math
from functools import partial

import mpmath
import pytest
import scipy
import torch
from gnbook.deep_nonlinear import width
from gnbook.deep_nonlinear.chain import kernel, layers_of, random_chain
from gnbook.deep_nonlinear.duals import centred, hermite_coefficients, leaky_relu, smooth
from gnbook.deep_nonlinear.experiment import kappa
from gnbook.deep_nonlinear.networks import ACTIVATIONS, SHAPES, limit_kernel, network
from gnbook.deep_nonlinear.wide_limit import deep_relu_condition, standard_factors, wide_kernel
from gnbook.deep_nonlinear.width import bernstein_width, chernoff_width, hidden_layer_kernel, smallest_shares
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

import gnlib
from tests.gnbook.deep_nonlinear.test_claims_chains import entrywise
from tests.oracles import ends, relative
from tests.strategies import exact, gaussian, samples, seeds

COSINES = (-1.0, -0.999, -0.3, 0.0, 0.5, 0.99, 0.999999, 1.0)
SLACK = 1 + 1e-9
ASKED = {"shortfall": 0.5, "failure": 0.01}
KAIMING = 2**0.5


def on_a_sphere(n, d, seed=0):
    return d**0.5 * functional.normalize(gaussian(seed, n, d))


def erf(q):
    """The dual of the error function at a covariance (Williams 1997)."""
    sides = 1 + 2 * q.diagonal()
    product = torch.outer(sides, sides)
    slopes = 4 / math.pi / (product - 4 * q.square()).sqrt()
    return 2 / math.pi * (2 * q / product.sqrt()).asin(), slopes


NETWORKS = {  # activation, its dual, gain
    "relu": (nn.ReLU, leaky_relu(0.0), KAIMING),
    "leaky relu": (partial(nn.LeakyReLU, 0.3), leaky_relu(0.3), (2 / 1.09) ** 0.5),
    "erf": (partial(entrywise, torch.erf), erf, 1.2),
    "tanh": (nn.Tanh, smooth(torch.tanh), 1.0),
    "gelu": (nn.GELU, smooth(functional.gelu), 1.3),
}


def terms(name, widths, x, seed):
    """What each layer of a network that is drawn adds to n times the kernel."""
    activation, _, gain = NETWORKS[name]
    network = random_chain(widths, activation, gain=gain, generator=torch.Generator().manual_seed(seed))
    return torch.stack([len(x) * kernel([layer]) for layer in layers_of(network, x)])


def covariance(sizes, cosine):
    root = (sizes[0] * sizes[1]) ** 0.5
    return exact([[sizes[0], root * cosine], [root * cosine, sizes[1]]])


@pytest.mark.claim("Expectations on a Gaussian pair", verdict="holds")
@pytest.mark.parametrize("slope", [0.0, 0.3, -1.0])
def test_the_dual_of_leaky_relus_is_an_integral_over_the_angle(slope):
    """Both expectations are of functions of degree 2 and 0 in a radius whose mean square is 2."""
    for cosine in COSINES:
        both, slopes = leaky_relu(slope)(covariance((0.5, 3.0), cosine))
        theta = math.acos(cosine)
        kinks = {t % (2 * math.pi) for t in (math.pi / 2, -math.pi / 2, math.pi / 2 + theta, theta - math.pi / 2)}
        for found, scale, function in (
            (both, 1.5**0.5 * 2, lambda z: z if z > 0 else slope * z),
            (slopes, 1, lambda z: 1.0 if z > 0 else slope),
        ):

            def around(t, function=function, theta=theta):
                return function(math.cos(t)) * function(math.cos(t - theta))

            integral, _ = scipy.integrate.quad(around, 0, 2 * math.pi, points=sorted(kinks), epsabs=1e-13)
            expected = scale * integral / (2 * math.pi)
            assert found[0, 1].item() == pytest.approx(expected, abs=1e-8 * (1 + slope**2))


@pytest.mark.claim("Expectations on a Gaussian pair", verdict="holds")
@pytest.mark.parametrize("variances", [(1.0, 1.0), (0.01, 2.0)])
@pytest.mark.parametrize("activation", [torch.erf, torch.tanh, functional.gelu, torch.sin])
def test_the_dual_of_smooth_activations_is_an_integral_over_the_plane(activation, variances):
    """By the trapezoidal rule, which is accurate for smooth functions."""

    def derivative(z):
        return torch.func.vmap(torch.func.grad(activation))(z.flatten()).view_as(z)

    z = torch.linspace(-12, 12, 401, dtype=torch.float64)
    density = (z[1] - z[0]) * (-(z**2) / 2).exp() / (2 * math.pi) ** 0.5
    dual = erf if activation is torch.erf else smooth(activation)
    for cosine in COSINES:
        u, v = variances[0] ** 0.5 * z, variances[1] ** 0.5 * (cosine * z[:, None] + (1 - cosine**2) ** 0.5 * z)
        pairs = zip(dual(covariance(variances, cosine)), (activation, derivative), (1e-11, 1e-9), strict=True)
        for found, function, tolerance in pairs:
            expected = density @ (function(u)[:, None] * function(v)) @ density
            assert found[0, 1].item() == pytest.approx(expected.item(), abs=tolerance)


@pytest.mark.claim("Expectations on a Gaussian pair", verdict="holds")
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_gain_keeps_the_variance_by_the_dual_and_by_the_module(name):
    module, gain, dual = ACTIVATIONS[name]
    assert gain**2 * dual(torch.eye(1).double())[0].item() == pytest.approx(1, abs=1e-12)
    assert gain**2 * module()(gaussian(0, 10**6)).square().mean().item() == pytest.approx(1, abs=5e-3)


@pytest.mark.claim("The kernel of wide networks", verdict="holds")
@pytest.mark.parametrize("name", ["ReLU", "GELU", "linear"])
def test_wide_networks_come_near_the_limit_of_their_own_shape(name):
    widths, x = [6, 700, 700, 1], gaussian(0, 4, 6)
    limits = {shape: limit_kernel(name, shape, widths, x) for shape in SHAPES}
    for shape in SHAPES:
        drawn = [network(name, shape, widths, generator=torch.Generator().manual_seed(seed)) for seed in range(4)]
        mean = torch.stack([4 * kernel(layers_of(net, x)) for net in drawn]).mean(0)
        apart = {other: relative(mean, limit) for other, limit in limits.items()}
        assert min(apart, key=apart.get) == shape and apart[shape] < 0.08


@pytest.mark.claim("The kernel of wide networks", verdict="holds")
@pytest.mark.parametrize("name", NETWORKS)
def test_each_layer_tends_to_its_own_term(name):
    _, dual, gain = NETWORKS[name]
    x, widths = gaussian(1, 5, 8), [8, 400, 400, 1]
    mean = sum(terms(name, widths, x, seed) for seed in range(6)) / 6
    for own, found in zip(torch.eye(3).tolist(), mean, strict=True):
        factors = [one * c for one, c in zip(own, standard_factors(widths, gain), strict=True)]
        assert relative(found, wide_kernel(x, dual, factors, gain=gain)) < 0.2


@pytest.mark.claim("One hidden layer, mean and variance", verdict="holds")
@pytest.mark.parametrize("name", NETWORKS)
def test_the_mean_is_the_limit_and_the_variance_falls_like_the_width(name):
    activation, dual, gain = NETWORKS[name]
    x, units = gaussian(2, 4, 3), 400_000
    limit = wide_kernel(x, dual, [1.0, 1.0], gain=gain)
    z = (gain / 3**0.5 * gaussian(3, units, 3) @ x.mT).requires_grad_()
    h = activation()(z)
    (slopes,) = torch.autograd.grad(h.sum(), z)
    h, slopes = h.detach(), gain / 3**0.5 * gaussian(4, units, 1) * slopes
    each = gain**2 * (h[:, :, None] * h[:, None] + slopes[:, :, None] * slopes[:, None] * (x @ x.mT))
    spread = (each - limit).square().sum((1, 2)).mean().item()
    assert relative(each.mean(0), limit) < 5 * (spread / units) ** 0.5 / limit.norm().item()
    for m in (10, 100):
        variance = (each.view(-1, m, 4, 4).mean(1) - limit).square().sum((1, 2)).mean()
        assert variance.item() == pytest.approx(spread / m, rel=0.1)


@pytest.mark.claim("Deviation in width and depth", verdict="open")
@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_the_deviation_grows_like_the_root_of_the_depth_over_the_width(name):
    """Root mean squares of the relative deviation of twelve networks from the kernel of infinite width."""
    _, dual, gain = NETWORKS[name]
    x, depths, found = gaussian(0, 6, 10), exact([2, 4, 8, 16]), []
    for depth in (2, 4, 8, 16):
        widths = [10, *[256] * (depth - 1), 1]
        limit = wide_kernel(x, dual, standard_factors(widths, gain), gain=gain)
        apart = exact([relative(terms(name, widths, x, seed).sum(0), limit) for seed in range(12)])
        found.append(apart.square().mean().sqrt())
    shares = torch.stack(found) / (depths / 256) ** 0.5
    logs = depths.log() - depths.log().mean()
    assert 0.35 < (logs @ torch.stack(found).log() / (logs @ logs)).item() < 0.65  # the slope of a straight line
    assert (shares > 0.5).all() and (shares < 2.5).all()


HALF, MULTIPLES = on_a_sphere(3, 4), torch.arange(1, 6, dtype=torch.float64)[:, None]
HOSTILE = {
    "sphere": on_a_sphere(6, 4),
    "close": on_a_sphere(6, 4) + 0.05 * on_a_sphere(1, 4, 1)[0] * torch.arange(6)[:, None].double(),
    "opposite": torch.cat([HALF, -HALF]),
    "one dimension more": torch.cat([0.2 * on_a_sphere(5, 1) * MULTIPLES, torch.ones(5, 1)], 1),
}


@pytest.mark.claim("Deep leaky ReLU networks", verdict="holds")
@pytest.mark.parametrize("x", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("slope, branch", [(0.0, None), (-0.5, None), (0.0, 0.7)])
def test_kappa_tends_to_what_the_norms_say(x, slope, branch):
    gain, limit = (2 / (1 + slope**2)) ** 0.5, deep_relu_condition(x.norm(dim=1))
    found = [kappa(wide_kernel(x, leaky_relu(slope), [1.0] * depth, gain=gain, branch=branch)) for depth in (150, 600)]
    assert abs(found[1] - limit) < 0.4 * abs(found[0] - limit)
    assert found[1] == pytest.approx(limit, rel=0.25)


@pytest.mark.claim("A limit of (n + 4) / 3", verdict="fails")
def test_two_orthogonal_samples_pass_below_n_plus_four_thirds():
    found = [kappa(wide_kernel(torch.eye(2), leaky_relu(0.0), [1.0] * depth, gain=KAIMING)) for depth in (100, 2000)]
    assert found[0] < 6 / 3 and found[1] == pytest.approx(5 / 3, rel=5e-3)
    with mpmath.workdps(40):
        kernel = cosine = mpmath.mpf(0)
        for _ in range(1999):
            angle = mpmath.acos(cosine)
            cosine += (mpmath.sin(angle) - angle * cosine) / mpmath.pi
            kernel = kernel * (1 - angle / mpmath.pi) + cosine
        share = kernel / 2000
        assert found[1] == pytest.approx(float((1 + share) / (1 - share)), rel=1e-6)


@pytest.mark.claim("Equal norms are best", verdict="holds")
@given(st.integers(2, 6), seeds, st.sampled_from([0.01, 1.0, 4.0]))
def test_other_norms_have_no_smaller_condition(n, seed, spread):
    assert deep_relu_condition((spread * gaussian(seed, n)).exp()) * SLACK >= (n + 3) / 3
    assert deep_relu_condition(7 * torch.ones(n)) == pytest.approx((n + 3) / 3)


@pytest.mark.claim("Branches of one over the depth, and of its root", verdict="holds")
def test_branches_of_one_over_the_depth_leave_one_hidden_layer_and_of_its_root_a_flow():
    """Like one over the depth, so that four times the depth has a quarter of the error."""

    def check(limit, at):
        errors = [relative(at(depth), limit) for depth in (40, 160)]
        assert errors[1] < 0.02 and errors[1] == pytest.approx(errors[0] / 4, rel=0.1)

    x = gaussian(0, 5, 6)
    for name in ("relu", "tanh"):
        _, dual, gain = NETWORKS[name]
        of = partial(wide_kernel, x, dual, gain=gain)
        check(of([1.0, 1.0]), lambda depth, of=of: of([1.0] * depth, branch=1 / depth))
    x, time, dual = on_a_sphere(4, 3), 1.5, leaky_relu(0.0)

    def moments(state):
        values, kernel = torch.as_tensor(state).view(2, 4, 4)
        both, slopes = dual((values + values.mT) / 2)
        return 2 * both, 2 * both + 2 * slopes * kernel

    def flow(_, state):
        return torch.stack(moments(state)).flatten().numpy()

    start = (2 / 3 * torch.stack([x @ x.mT] * 2)).flatten().numpy()
    end = scipy.integrate.solve_ivp(flow, (0, time), start, rtol=1e-9, atol=1e-12).y[:, -1]
    of = partial(wide_kernel, x, dual, gain=KAIMING)
    check(moments(end)[1], lambda blocks: of([1.0] * (blocks + 2), branch=(time / blocks) ** 0.5))


@pytest.mark.claim("Correlations behind centred activations", verdict="holds")
@given(seeds, st.integers(1, 12), st.sampled_from([1, 8, 30]), st.sampled_from([0, 80]), st.floats(-1, 1))
def test_correlations_shrink_by_the_share_that_is_not_linear(seed, n, power, gap, r):
    """For weights of the degrees from one on that add up to one: spread, nearly of a single degree, or of high ones."""
    weights = gaussian(seed, n).abs() ** power + 1e-300
    weights = torch.cat([weights[:1], torch.zeros(gap), weights[1:]]) / weights.sum()
    mu, value = 1 - weights[0].item(), abs((weights * exact(r) ** torch.arange(1, len(weights) + 1)).sum().item())
    assert value <= abs(r) * (1 - mu * (1 - abs(r))) + 1e-14
    if value < 1 - 1e-9 and abs(r) < 1 - 1e-9:
        assert value / (1 - value) <= abs(r) / (1 - abs(r)) / (1 + mu) * (1 + 1e-6)


@pytest.mark.claim("Kappa behind centred activations", verdict="holds")
@pytest.mark.parametrize("activation", [torch.tanh, functional.gelu, torch.cos])
def test_the_condition_of_wide_networks_is_bounded_by_the_correlation_of_the_samples(activation):
    normal, x = centred(activation), on_a_sphere(10, 20)
    mu, bounds = 1 - hermite_coefficients(normal, exact([1.0]))[0, 1].item() ** 2, []
    r = (x @ x.mT / 20).abs().fill_diagonal_(0.0)
    for depth in (2, 10, 40):
        found = kappa(wide_kernel(x, smooth(normal), [1.0] * depth, gain=1.0))
        rho = torch.linalg.eigvalsh(r / (r + (1 - r) * (1 + mu) ** (depth - 1)))[-1].item()
        bounds.append((1 + rho) / (1 - rho) if rho < 1 else math.inf)
        assert found <= bounds[-1] * SLACK
    assert bounds[-1] < math.inf and found < 1.01


@pytest.mark.claim("Layer normalisation makes all norms equal", verdict="holds")
@pytest.mark.parametrize("depth", [2, 3, 6])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_layer_normalisation_is_a_chain_on_samples_of_one_norm(name, depth):
    """By the induction of the proof, with the divisor of each normalisation."""
    x, widths = exact([[0.3], [1.0], [1.0], [1.3], [1.6]]) * gaussian(0, 5, 8), [8, *[50] * (depth - 1), 1]
    _, gain, dual = ACTIVATIONS[name]
    first, *factors = standard_factors(widths, gain)
    values = gain**2 / 8 * (x @ x.mT)
    expected = first * values
    for factor in factors:
        sizes = values.diagonal().sqrt()
        both, slopes = (gain**2 * mean for mean in dual(values / torch.outer(sizes, sizes)))
        values, expected = both, factor * both + slopes * expected / torch.outer(sizes, sizes)
    torch.testing.assert_close(limit_kernel(name, "LayerNorm", widths, x), expected, rtol=1e-11, atol=1e-11)
    assert relative(limit_kernel(name, "chain", widths, x), expected) > 0.05


def images(kind, n=100):
    x, _ = gnlib.load("mnist", n)
    return gnlib.whiten(x) if kind == "white" else x


def exponent(shortfall):
    return shortfall + (1 - shortfall) * math.log1p(-shortfall)


@pytest.mark.claim("The mean of a unit", verdict="holds")
@given(st.integers(2, 4).flatmap(samples))
def test_a_unit_and_its_mean_lie_between_multiples_of_the_gram_matrix(x):
    x = x[x.norm(dim=1) > 0]
    if len(x) == 0:
        return
    gram, mean = x @ x.mT, hidden_layer_kernel(x)
    top = ends(gram)[1]
    assert ends(mean - gram / 4)[0] >= -1e-12 * top
    assert top / 4 <= ends(mean)[1] * SLACK and ends(mean)[1] <= top / 2 * SLACK
    for active in gaussian(0, 5, x.shape[1]) @ x.mT > 0:
        unit = active[:, None] * gram * active
        assert ends(unit)[0] >= -1e-12 * top and ends(unit)[1] <= top * SLACK


@pytest.mark.claim("Width by Chernoff", verdict="holds")
@given(st.integers(1, 4), st.integers(1, 6), st.floats(0.05, 0.95), seeds)
def test_the_probability_is_bounded_where_it_is_known(n, tens, shortfall, seed):
    """Orthogonal samples of different norms: the smallest entry of a diagonal matrix of counts."""
    sizes = gaussian(seed, n).exp()
    units, least, most = 10 * tens, sizes.min().item(), sizes.max().item()
    needed = [(1 - shortfall) * least * units / 2 / size for size in sizes.tolist()]
    none = math.prod(scipy.stats.binom.sf(math.floor(count + 1e-12), units, 0.5) for count in needed)
    bound = n * math.exp(-exponent(shortfall) * units * least / 2 / most)
    assert 1 - none <= bound * SLACK and bound <= n * math.exp(-(shortfall**2) / 2 * units * least / 2 / most) * SLACK


@pytest.mark.claim("Width by Bernstein", verdict="holds")
@pytest.mark.parametrize("kind", ["white", "raw", "sphere"])
def test_the_spread_is_at_most_the_inverse_share_and_networks_keep_half_of_every_eigenvalue(kind):
    x = on_a_sphere(30, 12) if kind == "sphere" else images(kind, 60)
    share = ends(hidden_layer_kernel(x))[0] / torch.linalg.matrix_norm(x, 2).item() ** 2
    spread = width.unit_spread(x, 2000, generator=torch.Generator().manual_seed(0))
    assert 1 <= spread <= 1.1 / share
    if kind == "white":
        assert spread == pytest.approx(2.0, rel=0.1)
        units = bernstein_width(len(x), spread, **ASKED)
        first, second = smallest_shares(x, units, 200, generator=torch.Generator().manual_seed(1))
        assert (second > 0.5).double().mean() >= 0.99 and (first >= second / SLACK).all()


@pytest.mark.claim("White samples, exactly", verdict="holds")
def test_orthogonal_samples_are_independent_coins_and_half_of_the_units_that_are_asked_for_are_needed():
    def failure(units, n):
        """The probability that one of n orthogonal samples has half of the expected active units, or fewer."""
        return -math.expm1(n * scipy.stats.binom.logsf(math.floor(units / 4), units, 0.5))

    first, second = smallest_shares(3 * torch.eye(5).double(), 20, 4000, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(first, second)
    assert (first <= 0.5).double().mean().item() == pytest.approx(failure(20, 5), abs=0.02)
    assert max(units for units in range(1, 300) if failure(units, 200) > 0.01) == 60
    asked, spread = chernoff_width(torch.eye(200), **ASKED), math.log(200 / 0.01)
    assert asked == 130 and (asked - 1) * exponent(0.5) / 2 < spread <= asked * exponent(0.5) / 2
    assert bernstein_width(200, 2.0, **ASKED) == 159 and 158 < 16 * spread <= 159


@pytest.mark.claim("Whitening, in units of width", verdict="fails")
def test_raw_images_need_a_few_times_the_units_of_white_ones_not_a_thousand_times():
    def failures(x, units):
        first, _ = smallest_shares(x, units, 60, generator=torch.Generator().manual_seed(0))
        return (first <= 0.5).double().mean()

    asked, needed = {}, {}
    for kind in ("white", "raw"):
        x = images(kind)
        asked[kind] = chernoff_width(x, **ASKED)
        needed[kind] = next(units for units in (30, 60, 120, 240) if failures(x, units) <= 0.05)
    assert asked["white"] == 121 and asked["raw"] > 500 * asked["white"]
    assert needed["raw"] <= 4 * needed["white"]


relu_kernel = partial(wide_kernel, dual=leaky_relu(0.0), factors=(1, 1), gain=KAIMING)


def powers(x, degrees):
    """Weights of the powers of the correlations in the kernel, and these powers.

    By the squares of the Hermite coefficients of the ReLU: 1 / (2 pi), 1 / 4, and ((k - 3)!!)^2 / (2 pi k!) for even k.
    """
    squares, even = [1 / (2 * math.pi), 1 / 4], 1 / (4 * math.pi)
    for k in range(2, degrees):
        squares.append(0.0 if k % 2 else even)
        even *= 1.0 if k % 2 else (k - 1) ** 2 / ((k + 1) * (k + 2))  # from degree k to k + 2
    degree = torch.arange(degrees, dtype=torch.float64)
    correlations = (x @ x.mT / x.shape[1]).fill_diagonal_(1.0)
    return 4 * exact(squares[:degrees]) * (1 + degree), correlations ** degree[:, None, None]


@pytest.mark.claim("Powers of the correlations", verdict="holds")
@given(seeds, st.integers(1, 12), st.integers(1, 6), st.integers(1, 60))
def test_the_kernel_is_the_series_of_powers_and_not_below_its_floors(seed, n, d, degrees):
    x = on_a_sphere(n, d, seed)
    weights, correlations = powers(x, 4000)
    tail = 4 - float(weights.sum())  # of the higher powers on the diagonal
    apart = ((weights[:, None, None] * correlations).sum(0) - relu_kernel(x)).abs()
    assert (apart <= tail * correlations[-1].abs() + 1e-9).all() and tail < 0.08
    floors = []
    for count in (degrees, degrees + 5):  # more degrees say more
        weights, correlations = powers(x, count)
        weights[-1] = 4 - weights[:-1].sum()  # the last is for all higher ones too
        floors.append(weights @ torch.linalg.eigvalsh(correlations)[:, 0].clamp_min(0.0))
    assert (weights >= 0).all() and floors[0] - 1e-9 <= floors[1] <= ends(relu_kernel(x))[0] + 1e-9


@pytest.mark.claim("Close samples", verdict="holds")
@pytest.mark.parametrize("theta", [1e-3, 1e-2, 1e-1, 1.0, 1.97, 1.98, 2.5, 3.1])
def test_two_samples(theta):
    x = exact([[1.0, 0.0], [math.cos(theta), math.sin(theta)]])
    between = (math.sin(theta) + 2 * (math.pi - theta) * math.cos(theta)) / math.pi
    assert (between > 0) == (theta < 1.976)
    # up to the root of rounding, as an angle of zero is
    assert ends(relu_kernel(x))[0] == pytest.approx(2 - abs(between), abs=1e-7)
    if theta <= 0.1:
        assert (2 - abs(between)) / theta == pytest.approx(1 / math.pi, abs=1.1 * theta)

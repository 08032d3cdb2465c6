"""The law of depth: its steps on matrices that are drawn, its edges in fifty digits, its limits; and what it becomes
for layers that count differently, several outputs, and circular convolutions.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from torch import nn

from gnlib import GaussNewton
from gnlib.laws import deep_linear, kappa
from gnlib.laws import recursion as laws
from gnlib.laws.network import DEVIATION, TRACY_WIDOM, Network
from tests.gnlib.laws.networks import spectrum
from tests.oracles import products
from tests.strategies import gaussian, seeds


@dataclass
class Layer:
    """A layer of m rows and N columns, Gaussian of deviation s / sqrt(N) plus b times the identity, or orthonormal."""

    m: int
    columns: int
    s: float = 1.0
    b: float = 0.0
    orthogonal: bool = False

    def draw(self, rng):
        shape = self.m, self.columns
        if self.orthogonal:
            return self.s * haar(rng, *shape)
        return self.s * rng.standard_normal(shape) / self.columns**0.5 + self.b * np.eye(*shape)

    @property
    def rho(self):
        """By how much it multiplies the squared norm of a row to its left."""
        return (self.s**2 + self.b**2) * (min(1, self.columns / self.m) if self.orthogonal else 1)

    def factor(self, omega, n):
        """What it multiplies z with, on a space of n dimensions."""
        rows = max(self.m, n)
        if self.orthogonal:
            return self.s**2 * ((rows + omega) / (self.columns + omega) if self.m < self.columns else 1)
        v = self.s**2 / self.columns
        half = (v * rows + self.b**2) / 2
        root = mpmath.sqrt if isinstance(omega, mpmath.mpf | mpmath.mpc) else np.emath.sqrt
        return v * omega + half + root(half**2 + v * self.b**2 * omega)


def haar(rng, rows, columns):
    q, r = np.linalg.qr(rng.standard_normal((max(rows, columns), min(rows, columns))))
    q = q * np.sign(np.diag(r))
    return q if rows >= columns else q.T


def curve(v, rank, layers, top=1.0):
    """The point (z, Omega) of 1 + W_1' (1 + W_2' (...) W_2 / rho_3) W_1 / rho_2, up to rho_L, which is `top`.

    Written anew, in g = (n + Omega) / z.
    """
    ranks = np.minimum.accumulate([rank, *(layer.m for layer in layers)]).tolist()
    above = [layer.rho for layer in layers[1:]] + [top]
    omega = g = v
    size = ranks[-1]
    for layer, rho, n in reversed(list(zip(layers, above, ranks[:-1], strict=True))):
        f = layer.factor(omega, n) / rho
        lone = (n - size) / ((size + omega) / g * f) if n > size else 0  # eigenvalues zero
        g = g / f + lone
        omega, size = omega + g, n
    return (size + omega) / g, omega


def network_of(inputs, widths, data, scale=1.0, skip=0.0):
    """The library's network, with layers that are alike or each with a scale and a skip of its own."""
    count = len(widths) + 1
    scales, skips = (np.broadcast_to(value, count).tolist() for value in (scale, skip))
    return Network(inputs, widths, scales, skips, [1.0] * count, False, np.ones(data))


def omega(values, z):
    return (values / (z - values)).sum()


def deep(widths, rng, beta=0.0):
    """A_l A_l' and B_l' B_l, from the first layer on, of weights of variance 1 / columns, with a skip."""
    weights = [rng.standard_normal((m, n)) / n**0.5 + beta * np.eye(m, n) for n, m in pairwise(widths)]
    above, below = [np.eye(len(weights[-1]))], [np.eye(weights[0].shape[1])]
    for w in weights[:0:-1]:
        above.append(above[-1] @ w)
    for w in weights[:-1]:
        below.append(w @ below[-1])
    return [a @ a.T for a in above[::-1]], [b.T @ b for b in below]


def whole(above, below):
    """Eigenvalues of the Gauss-Newton matrix."""
    return np.linalg.eigvalsh(sum(np.kron(a, b) for a, b in zip(above, below, strict=True)))


@pytest.mark.claim("Few outputs, one matrix", verdict="holds")
@given(seeds, st.integers(2, 4), st.integers(1, 4))
def test_eigenvalues_are_those_of_one_matrix_up_to_the_relative_deviations(seed, layers, k):
    rng = np.random.default_rng(seed)
    above, below = deep([*(int(n) for n in rng.integers(k, 6, layers)), k], rng)
    weights = np.append(10.0 ** rng.uniform(-2, 2, layers - 1), 1)
    off = np.array([np.linalg.eigvalsh(a / w)[[0, -1]] for a, w in zip(above, weights, strict=True)])
    values, one = whole(above, below), whole([w * np.eye(k) for w in weights], below)
    rounding = 1e-11 * values[-1]
    assert (values >= off[:, 0].min() * one - rounding).all() and (values <= off[:, 1].max() * one + rounding).all()


KINDS = {
    "wide": (Layer(360, 240), 200),
    "narrow": (Layer(120, 240, s=1.3), 200),
    "a skip, square": (Layer(240, 240, b=1.0), 240),
    "a skip, fewer data": (Layer(240, 240, s=0.7, b=1.5), 150),
    "a skip, more rows": (Layer(300, 200, b=0.8), 150),
    "orthonormal columns": (Layer(300, 240, s=1.2, orthogonal=True), 150),
    "orthonormal rows, more than data": (Layer(200, 300, orthogonal=True), 150),
    "orthonormal rows, fewer than data": (Layer(120, 300, orthogonal=True), 180),
}


@pytest.mark.claim("What a layer multiplies with", verdict="holds")
@pytest.mark.parametrize(("layer", "n"), KINDS.values(), ids=KINDS)
def test_a_matrix_between_a_layer_has_the_same_omega_at_another_point(layer, n):
    """The first step, from all m dimensions to those that are reached, is the factor (n' + Omega) / (m + Omega)."""
    rng, draws = np.random.default_rng(2), []
    inner = np.concatenate([np.full(layer.m // 2, 1.0), np.linspace(2, 4, layer.m - layer.m // 2)])
    for _ in range(4):
        q, w = haar(rng, layer.m, layer.m), layer.draw(rng)[:, :n]
        draws.append(np.linalg.eigvalsh(w.T @ (q * inner) @ q.T @ w))
    for z in (-3.0, 2 + 8j, 6 + 8j, 20.0):
        at, reached = omega(inner, z), min(layer.m, n)
        factor = layer.factor(at, n) * (reached + at) / (layer.m + at)
        assert omega(np.concatenate(draws), z * factor) / 4 == pytest.approx(at, rel=0.015)


SUMS = {
    "widths of their own": dict(widths=[150, 220, 130], inputs=180),
    "skips": dict(widths=[180, 180, 180], inputs=180, skip=1.0),
    "skips and branches": dict(widths=[180] * 5, inputs=160, skip=1.0, scale=0.5),
    "a bottleneck": dict(widths=[160, 70, 150], inputs=180),
}


@pytest.mark.claim("Layer by layer", verdict="holds")
@pytest.mark.parametrize("case", SUMS.values(), ids=SUMS)
def test_networks_that_are_drawn_lie_on_the_curve(case):
    widths, inputs, rank = case["widths"], case["inputs"], 140
    both = {"scale": case.get("scale", 1.0), "skip": case.get("skip", 0.0)}
    rows = both["scale"] ** 2 + both["skip"] ** 2
    layers = [Layer(m, n, s=both["scale"], b=both["skip"]) for n, m in pairwise([inputs, *widths])]
    weights = [rows**i for i in range(len(widths), -1, -1)]
    drawn = [spectrum([inputs, *widths], rank=rank, weights=weights, seed=seed, **both) for seed in range(2)]
    network = network_of(inputs, widths, rank, **both)
    for v in (4 - 4j, -6 + 3j, 5j, -9 + 0j):
        z, at = curve(v, rank, layers, rows)
        assert omega(np.concatenate(drawn) / weights[0], z) / 2 == pytest.approx(at, rel=0.02)
        point = laws.last(network.curve(network.rows), np.array([v]))
        assert (point.z[0], point.omega[0]) == (pytest.approx(z), pytest.approx(at))


EDGES = {
    "plain": (20, [Layer(30, 24), Layer(40, 30), Layer(21, 40)]),
    "square": (20, [Layer(20, 20), Layer(20, 20)]),
    "skips": (20, [Layer(24, 22, s=0.5, b=1.0), Layer(24, 24, s=2.0), Layer(24, 24, b=0.4)]),
    "a skip, two layers": (20, [Layer(20, 20, b=0.7)]),
    "narrowing": (20, [Layer(30, 50, orthogonal=True), Layer(25, 30, orthogonal=True), Layer(60, 25)]),
}


def bracketed(of, low, high):
    """The zero of a function, in the digits of mpmath."""
    return mpmath.findroot(of, (low, high), solver="bisect", maxsteps=200, tol=mpmath.mpf(10) ** -100, verify=False)


@pytest.mark.claim("Edges are first turns", verdict="holds")
@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("name", EDGES)
def test_at_the_first_turn_the_density_begins_like_a_square_root(name, side):
    """Within it z = x has no real solution but a complex one, and beyond it the real one; in fifty digits."""
    rank, layers = EDGES[name]

    def z(v):
        return curve(v, rank, layers)[0]

    with mpmath.workdps(50):
        v, step = mpmath.mpf(side) / 1000, mpmath.mpf("1.02")
        while side * (z(step * v) - z(v)) <= 0:
            v *= step
        v = bracketed(lambda u: mpmath.diff(z, u), v / step, v * step)
        end, bend = z(v), mpmath.diff(z, v, 2)
        if not layers[0].orthogonal:
            scales, skips = [layer.s for layer in layers] + [1.0], [layer.b for layer in layers] + [0.0]
            widths = [layer.m for layer in layers]
            network = network_of(layers[0].columns, widths, rank, scales, skips)
            assert laws.edge(network.curve(network.rows), side, 0.7 * rank) == pytest.approx(float(end), rel=1e-11)
        for inside in (True, False):
            x = end + (-1 if inside else 1) * side * mpmath.mpf(10) ** -8
            away = mpmath.sqrt(2 * (x - end) / bend)
            root = mpmath.findroot(lambda u, x=x: z(u) - x, v + away * (1 if inside else -side))
            assert abs(root - v) == pytest.approx(float(abs(away)), rel=1e-2)
            assert (abs(mpmath.im(root)) > 1e-6 * abs(v)) == inside


@pytest.mark.claim("One turn", verdict="holds")
@given(seeds, st.booleans())
def test_the_share_of_a_law_falls_towards_its_support(seed, above):
    """alpha = (1 + w) e, e = -d log z / d log w, above the support and between zero and it; laws of any kind."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 6))
    x, p = np.sort(10.0 ** rng.uniform(-4, 0, count)), 10.0 ** rng.uniform(-5, 0, count)
    gaps = np.geomspace(1e-6, 1e4 if above else 0.9999, 300)[::-1]
    z = x[-1] * (1 + gaps) if above else x[0] * (1 - gaps)
    r, p = x / (z[:, None] - x), p / p.sum()
    w = r @ p
    alpha = (1 + w) * w / (z * (r / (z[:, None] - x) @ p))
    assert (np.diff(alpha) <= 1e-9 * alpha[:-1]).all() and (alpha < 1 + 1e-9).all()
    slope = np.gradient(np.log(z), np.log(np.abs(w)))[1:-1]
    assert np.median(np.abs(-slope * (1 + w[1:-1]) / alpha[1:-1] - 1)) < 0.01


@pytest.mark.claim("No eigenvalue outside, Gaussian layers", verdict="holds")
def test_the_ends_of_larger_networks_are_nearer_to_the_edges():
    off = []
    for d, draws in ((40, 12), (240, 4)):
        law = deep_linear(4, 2 * d, d)
        ends = np.mean([spectrum([d, *[2 * d] * 3], weights=[1.0] * 4, seed=s)[[0, -1]] for s in range(draws)], axis=0)
        off.append(np.abs(ends / [law.lower, law.upper] - 1))
    assert (off[1] < 0.05).all() and (off[1] < 0.6 * off[0]).all()


OTHERS = {
    "skips": ([240] * 4, dict(skip=1.0, weights=[8.0, 4.0, 2.0, 1.0])),
    "narrowing": ([240, 180, 170, 160], dict(orthogonal=True, weights=[1.0] * 4)),
    "many layers": ([640] * 12, dict(weights=[1.0] * 12)),
    "data": ([160, 300, 300, 300], dict(data=np.linspace(0.3, 1, 160), weights=[1.0] * 4)),
    "rates": ([160, 320, 320, 320], dict(rates=[1.0, 0.0, 0.0, 2.0])),
    "other rates": ([160, 320, 320, 320], dict(rates=[0.1, 3.0, 0.5, 0.0])),
    "none for the first layer": ([160, 320, 320, 320], dict(rates=[0.0, 1.0, 0.2, 1.0])),
}


@pytest.mark.claim("No eigenvalue outside, other cases", verdict="open")
@pytest.mark.claim("Layers that count differently", verdict="holds")
@pytest.mark.parametrize(("widths", "keywords"), OTHERS.values(), ids=OTHERS)
def test_no_eigenvalue_was_found_far_outside_and_the_ends_are_near(widths, keywords):
    """Where rates differ, norms of rows scatter, too: the mean of four networks."""
    of_law = {name: value for name, value in keywords.items() if name != "weights"}
    law = deep_linear(len(widths), widths[1:], **({"data": 160, "inputs": widths[0]} | of_law))
    networks = range(1, 5 if "rates" in keywords else 2)
    ends = np.mean([spectrum(widths, rank=160, seed=seed, **keywords)[[0, -1]] for seed in networks], axis=0)
    assert ends == pytest.approx([law.lower, law.upper], rel=0.1)


def limit_ends(t):
    """The values of the closed form at its stationary points, in the digits of mpmath."""

    def upper(x):
        return mpmath.cosh(x) * (t * mpmath.cosh(x) / (2 * x**2) + mpmath.sinh(x) / x)

    def excess(y):
        return y * (mpmath.sin(y) - y * mpmath.cos(y)) - t * (y * mpmath.sin(y) + 2 * (1 + mpmath.cos(y)))

    high = mpmath.findroot(lambda x: mpmath.diff(upper, x), math.sqrt(math.sqrt(0.75 * float(t)) if t < 2 else 1.4))
    low = bracketed(excess, mpmath.mpf(0), mpmath.pi) / 2
    return mpmath.cos(low) * (mpmath.sin(low) / low - t * mpmath.cos(low) / (2 * low**2)), upper(high)


@pytest.mark.claim("Many layers", verdict="holds")
@pytest.mark.parametrize("t", [0.1, 1.0, 6.0])
def test_the_recursion_tends_to_the_closed_form_like_one_over_the_depth(t):
    with mpmath.workdps(40):
        ends = np.array([float(end) for end in limit_ends(mpmath.mpf(t))])
    assert kappa(t) == pytest.approx(ends[1] / ends[0], rel=1e-11)
    wide, off = 10**9, []
    for layers in (100, 200, 400):
        law = deep_linear(layers, wide, round(t * wide / layers), inputs=wide)
        off.append(np.array([law.lower, law.upper]) / layers - ends)
    assert off[0] / off[1] == pytest.approx([2, 2], rel=0.05) and off[1] / off[2] == pytest.approx([2, 2], rel=0.03)


@pytest.mark.claim("Few and many layers per width", verdict="holds")
def test_for_small_t_the_law_is_a_semicircle_and_for_large_t_the_constant_the_laplace_limit():
    with mpmath.workdps(50):
        for t in map(mpmath.mpf, ("1e-3", "1e-5", "1e-7")):
            (low, high), root = limit_ends(t), 2 * mpmath.sqrt(t / 3)
            assert abs(high - 1 - root - 3 * t / 5) < 2 * t**1.5 and abs(low - 1 + root - 3 * t / 5) < 2 * t**1.5
            assert abs(high / low - 1 - 2 * root - 8 * t / 3) < 6 * t**1.5
        theta = mpmath.findroot(lambda x: x * mpmath.tanh(x) - 1, 1.2)
        limit = theta / mpmath.cosh(theta)
        assert abs(limit * mpmath.exp(mpmath.sqrt(1 + limit**2)) - 1 - mpmath.sqrt(1 + limit**2)) < 1e-45
        assert float(1 / limit**2) == pytest.approx(2.2767, abs=5e-5)
        for t in map(mpmath.mpf, (100, 10_000)):
            low, high = limit_ends(t)
            assert abs(high * limit**2 - t / 2 - 1 + theta**2 / (2 * t)) < 5 / t**2
            assert abs(low - 1 / (2 * t) + mpmath.pi**2 / (8 * t**3)) < 5 / t**4
            assert abs(high / low * limit**2 - t**2 - 2 * t - (mpmath.pi**2 / 4 - theta**2)) < 10 / t
        assert kappa(1e10) == pytest.approx(float((mpmath.mpf(10) ** 20 + 2e10) / limit**2), rel=1e-14)


@pytest.mark.claim("Equal layers of any kind", verdict="holds")
@pytest.mark.parametrize(
    ("kind", "t"),
    [
        (lambda n: dict(skip=1.0, scale=0.8 / n**0.5, widths=100, data=100, inputs=100), 2 * 0.8**2),
        (lambda n: dict(skip=1.0, scale=1.5 / n**0.5, widths=100, data=40, inputs=100), 2 * 1.5**2 * 0.4),
        (lambda n: dict(skip=0.8, scale=0.6, widths=n * 10**6, data=3 * 10**6, inputs=n * 10**6), 3 * (1 - 0.64**2)),
        (lambda n: dict(scale=1.01, widths=n * 10**6, data=2 * 10**6, inputs=n * 10**6), 2.0),
    ],
    ids=["branches", "branches and wide", "skips and wide", "plain"],
)
def test_any_equal_layers_have_the_law_of_many(kind, t):
    few, many = (deep_linear(n, **kind(n)).kappa for n in (300, 600))
    assert 2 * many - few == pytest.approx(kappa(t), rel=2e-3)
    assert deep_linear(6000, **kind(6000)).kappa == pytest.approx(kappa(t), rel=2e-3)  # by the closed form


@pytest.mark.claim("A first layer narrower than the data", verdict="holds")
@given(seeds, st.integers(1, 3), st.integers(2, 4))
def test_a_narrow_first_layer_leaves_eigenvalues_of_its_own_term(seed, k, layers):
    rng, d = np.random.default_rng(seed), 6
    widths = [d, int(rng.integers(k, d)), *(int(m) for m in rng.integers(k, 9, layers - 2)), k]
    above, below = deep(widths, rng)
    values, own = whole(above, below), np.linalg.eigvalsh(above[0])
    assert values[0] == pytest.approx(own[0], rel=1e-6, abs=1e-10 * values[-1])
    for lone in own:
        assert (np.abs(values - lone) < 1e-9 * values[-1]).sum() >= d - widths[1]


@pytest.mark.claim("An eigenvalue of the data apart", verdict="holds")
@pytest.mark.parametrize("spike", [1.15, 4.0, 30.0, 0.05])
def test_an_eigenvalue_apart_lies_where_subordination_is_equal_to_it(spike):
    """On a flat spectrum of one: the outlier is z zeta w / (1 + w) at zeta(w) = spike, w = 1 / (spike - 1)."""
    d, m, side = 240, 360, 1 if spike > 1 else -1
    z, at = curve(side * np.geomspace(1e-4, 1e3, 100_000) * d, d, [Layer(m, d), Layer(m, m), Layer(m, m)])
    inside = np.cumprod(np.append(side * np.diff(z) < 0, False)).astype(bool)
    z, w = z[inside], side * at[inside] / d  # the data's own zeta is 1 + 1 / w, so that the factor is one
    reached = 1 / abs(spike - 1) < w[-1]
    place = np.interp(1 / abs(spike - 1), w, z)
    assert reached == (spike != 1.15)
    data = np.sort(np.r_[np.ones(d - 1), spike])
    drawn = [spectrum([d, m, m, m], data=data, weights=[1.0] * 4, seed=s)[-1 if side > 0 else 0] for s in range(4)]
    assert np.mean(drawn) == pytest.approx(place, rel=0.07)
    assert getattr(deep_linear(4, m, data), "upper" if side > 0 else "lower") == pytest.approx(place, rel=2e-3)


def end_of_branches(sigma, ratio, side, gaussian):
    """An end of the spectrum of infinitely many branches with a factor: the first turn of a curve."""
    tau = sigma**2

    def end(w):
        theta = np.emath.sqrt(ratio * w * (1 + ratio * w)) * tau
        c, s = np.cosh(theta).real, (np.sinh(theta) / theta).real * tau
        d, n = c + ratio * w * s, w * c + w * (1 + ratio * w) * s
        return side * (1 + d * (d + n) / w * ((1 + ratio * n / d) / ratio if gaussian else 1))

    x = np.linspace(-20, 8, 5001)  # logarithms of |w|, up to the first turn, then between its neighbours
    with np.errstate(all="ignore"):  # far beyond the turn
        turned = np.argmax(np.diff(end(side * np.exp(x))) > 0)
        bounds = x[[turned - 1, turned + 1]]
        return side * minimize_scalar(lambda y: end(side * math.exp(y)), bounds=bounds, method="bounded").fun


@pytest.mark.claim("A factor in the forward pass", verdict="holds")
@pytest.mark.parametrize(("sigma", "ratio"), [(0.5, 1.0), (1.5, 0.5)])
@pytest.mark.parametrize("gaussian", [False, True], ids=["orthonormal", "Gaussian"])
def test_the_recursion_tends_to_the_closed_form(sigma, ratio, gaussian):
    """The first and the last layer have no factor. Like 1 / L, so that two depths give the limit."""
    found = []
    for layers in (150, 300):
        branch, inner = sigma / layers**0.5, layers - 2
        scale, skip = [float(gaussian), *[branch] * inner, 1.0], [float(not gaussian), *[1.0] * inner, 0.0]
        rates = [1.0, *[branch**2] * inner, 1.0]
        law = deep_linear(layers, 100, round(ratio * 100), scale=scale, skip=skip, rates=rates)
        found.append(np.array([law.lower, law.upper]) / (1 + branch**2) ** inner)
    expected = [end_of_branches(sigma, ratio, side, gaussian) for side in (-1, 1)]
    assert 2 * found[1] - found[0] == pytest.approx(expected, rel=1e-3)
    assert found[0][1] / found[0][0] < found[1][1] / found[1][0]


@pytest.mark.claim("Density at an edge", verdict="holds")
@pytest.mark.parametrize(
    "keywords",
    [dict(widths=200), dict(widths=120, skip=1.0, scale=0.5), dict(widths=[200, 300, 150], rates=[1, 0, 2, 1])],
    ids=["plain", "skips", "rates"],
)
def test_the_density_at_an_edge_is_a_root_with_the_scale(keywords):
    law = deep_linear(4, data=100, **keywords)
    for side, end, moments in ((1, law.upper, law.scatter.upper), (-1, law.lower, law.scatter.lower)):
        delta, near = abs(moments[0] / TRACY_WIDOM) * end, 1e-6 * (law.upper - law.lower)
        found = law.density([end - side * near])[0] * 100
        assert found == pytest.approx(math.sqrt(near / delta**3) / math.pi, rel=5e-3)


@pytest.mark.claim("Scatter of one network", verdict="open")
@pytest.mark.parametrize(("layers", "ratio"), [(2, 0.25), (4, 0.5), (8, 0.5)])
@pytest.mark.parametrize("rank", [50, 100])
def test_edges_of_drawn_sums_scatter_like_tracy_and_widoms_law(layers, ratio, rank):
    """The terms of all layers weigh 1, so that norms of rows do not scatter: means and deviations of 40 networks."""
    width = round(rank / ratio)
    of_law = laws.layers_curve(rank, [laws.Layer(rank, 1.0, 1 / width)] * (layers - 1))
    of_seeds = (spectrum([width] * layers, rank=rank, weights=[1.0] * layers, seed=seed) for seed in range(40))
    drawn = np.array([values[[0, -1]] for values in of_seeds])
    for side, found in zip((-1, 1), drawn.T, strict=True):
        end, v = laws.edge(of_law, side, 0.7 * rank), laws.turn(of_law, side, 0.7 * rank)
        delta, logs = laws.edge_scatter(of_law, v), np.log(found / end)
        assert logs.mean() == pytest.approx(side * TRACY_WIDOM * delta, abs=0.6 * delta)
        assert logs.std() == pytest.approx(DEVIATION * delta, rel=0.35)


def convolution(channels, taps, positions, seed):
    """Eigenvalues of the Gram matrix of stacked circular convolutions on white data.

    Beside them those of the Gauss-Newton matrices of the deep linear networks of each frequency, times the positions.
    """
    layers = []
    for index, (c, m) in enumerate(pairwise(channels)):
        layers.append(nn.Conv1d(c, m, taps, padding="same", padding_mode="circular", bias=False))
        layers[-1].weight = nn.Parameter(gaussian(10 * seed + index, m, c, taps) / (c * taps) ** 0.5)
    size = channels[0] * positions
    x = size**0.5 * torch.eye(size, dtype=torch.float64).reshape(size, channels[0], positions)
    values = np.linalg.eigvalsh(GaussNewton(nn.Sequential(*layers, nn.Flatten()), x).gram())[-channels[-1] * size :]
    alone = []
    for frequency in range(positions):
        wave = torch.exp(2j * torch.pi * frequency * torch.arange(taps, dtype=torch.float64) / positions)
        pairs = products([layer.weight.detach().to(wave) @ wave for layer in layers])
        total = sum(torch.kron(a @ a.mH, (b.mH @ b).conj()) for a, b in pairs)
        alone.append(positions * torch.linalg.eigvalsh(total))
    return values, torch.cat(alone).sort().values.numpy()


@pytest.mark.claim("Convolutions by frequency", verdict="holds if")
def test_circular_convolutions_of_full_kernels_are_a_linear_network_for_each_frequency():
    found, alone = convolution([3, 5, 4, 2], 4, 4, seed=0)
    np.testing.assert_allclose(found, alone, rtol=1e-9)


@pytest.mark.claim("Convolutions by frequency", verdict="holds if")
@pytest.mark.parametrize(("taps", "positions", "limit"), [(2, 3, 2.0), (3, 5, 3.0), (3, 3, 1.0)])
def test_fewer_taps_couple_the_frequencies(taps, positions, limit):
    """Two layers of many channels: the walk of two uniform steps decides, 1 : 2 : 1 and 1 : 2 : 3 : 2 : 1 ways."""
    found, alone = convolution([1, 3000, 1], taps, positions, seed=1)
    assert found[-1] / found[0] == pytest.approx(limit, rel=0.15)
    assert alone[-1] / alone[0] < 1.15


def shares_of(network, rank, side):
    """a_l e_l over the end, e_l its derivative by a_l, from the law alone."""
    v = laws.turn(network.curve(network.rows), side, 0.7 * rank)
    below = 1 - laws.sensitivity(rank, network.layers(network.rows), v)[::-1]
    return np.diff([0, *below, 1])


CASES = {"plain": (4, 120, 480, 3, 0.0), "eight outputs": (8, 80, 960, 4, 0.0), "skips": (4, 120, 480, 4, 1.0)}


@pytest.mark.claim("Several outputs", verdict="holds")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_ends_are_moved_by_the_ends_of_a_small_matrix(case):
    """Where each A_l A_l' deviates by a quarter, the ends move as foretold to a hundredth."""
    k, d, m, layers, beta = case
    above, below = deep([d, *[m] * (layers - 1), k], np.random.default_rng(1), beta)
    weights = [(1 + beta**2) ** (layers - 1 - i) for i in range(layers)]
    values, one = whole(above, below), np.linalg.eigvalsh(sum(w * b for w, b in zip(weights, below, strict=True)))
    network = network_of(d, [m] * (layers - 1), d, skip=beta)
    for side, i in ((1, -1), (-1, 0)):
        shares = shares_of(network, d, side)
        small = sum(e * (a / w - np.eye(k)) for e, a, w in zip(shares, above, weights, strict=True))
        foretold = np.linalg.eigvalsh(small)[i]
        assert values[i] / one[i] - 1 == pytest.approx(foretold, abs=0.006) and abs(foretold) > 0.025

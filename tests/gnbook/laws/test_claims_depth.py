"""The law of depth: its steps on matrices that are drawn, its edges in fifty digits, its limits."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnlib.laws import deep_linear, kappa
from gnlib.laws.network import Network
from gnlib.laws.recursion import edge, last
from tests.gnbook.laws.helpers import Layer, curve, deep, haar, terms, turn
from tests.gnlib.laws.networks import spectrum
from tests.strategies import instances, seeds

UPPER = {"a": lambda t, x: mpmath.cosh(x) * (t * mpmath.cosh(x) / (2 * x**2) + mpmath.sinh(x) / x)}
LOWER = {"a": lambda t, x: mpmath.cos(x) * (mpmath.sin(x) / x - t * mpmath.cos(x) / (2 * x**2))}


def omega(values, z):
    return (values / (z - values)).sum()


@pytest.mark.claim("Few outputs, one matrix", verdict="holds")
@instances
@given(seeds, st.integers(2, 4), st.integers(1, 4))
def test_eigenvalues_are_those_of_one_matrix_up_to_the_relative_deviations(seed, layers, k):
    rng = np.random.default_rng(seed)
    widths = [int(n) for n in rng.integers(k, 6, layers)]
    above, below = terms(deep([*widths, k], rng))
    weights = 10.0 ** rng.uniform(-2, 2, layers)
    weights[-1] = 1
    off = np.array([np.linalg.eigvalsh(a / w)[[0, -1]] for a, w in zip(above, weights, strict=True)])
    whole = np.linalg.eigvalsh(sum(np.kron(a, b) for a, b in zip(above, below, strict=True)))
    one = np.linalg.eigvalsh(np.kron(np.eye(k), sum(w * b for w, b in zip(weights, below, strict=True))))
    rounding = 1e-11 * whole[-1]
    assert (whole >= off[:, 0].min() * one - rounding).all() and (whole <= off[:, 1].max() * one + rounding).all()


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
    rng = np.random.default_rng(2)
    inner = np.concatenate([np.full(layer.m // 2, 1.0), np.linspace(2, 4, layer.m - layer.m // 2)])
    draws = []
    for _ in range(4):
        q, w = haar(rng, layer.m, layer.m), layer.draw(rng)[:, :n]
        draws.append(np.linalg.eigvalsh(w.T @ (q * inner) @ q.T @ w))
    values = np.concatenate(draws)
    for z in (-3.0, 2 + 8j, 6 + 8j, 20.0):
        at, reached = omega(inner, z), min(layer.m, n)
        factor = layer.factor(at, n) * (reached + at) / (layer.m + at)
        assert omega(values, z * factor) / 4 == pytest.approx(at, rel=0.015)


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
    scale, skip = case.get("scale", 1.0), case.get("skip", 0.0)
    layers = [Layer(m, n, s=scale, b=skip) for n, m in zip([inputs, *widths[:-1]], widths, strict=True)]
    unit = (scale**2 + skip**2) ** len(widths)
    weights = [(scale**2 + skip**2) ** (len(widths) - i) for i in range(len(widths) + 1)]
    values = np.concatenate(
        [spectrum([inputs, *widths], rank=rank, scale=scale, skip=skip, weights=weights, seed=s) for s in range(2)]
    )
    for v in (4 - 4j, -6 + 3j, 5j, -9 + 0j):
        z, at = curve(v, rank, layers, scale**2 + skip**2)
        assert omega(values / unit, z) / 2 == pytest.approx(at, rel=0.02)
        network = Network(
            inputs, widths, [scale] * len(weights), [skip] * len(weights), [1.0] * len(weights), False, np.ones(rank)
        )
        point = last(network.curve(network.rows), np.array([v]))
        assert (point.z[0], point.omega[0]) == (pytest.approx(z), pytest.approx(at))


EDGES = {
    "plain": (20, [Layer(30, 24), Layer(40, 30), Layer(21, 40)]),
    "square": (20, [Layer(20, 20), Layer(20, 20)]),
    "skips": (20, [Layer(24, 22, s=0.5, b=1.0), Layer(24, 24, s=2.0), Layer(24, 24, b=0.4)]),
    "a skip, two layers": (20, [Layer(20, 20, b=0.7)]),
    "narrowing": (20, [Layer(30, 50, orthogonal=True), Layer(25, 30, orthogonal=True), Layer(60, 25)]),
}


@pytest.mark.claim("Edges are first turns", verdict="holds")
@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("name", EDGES)
def test_at_the_first_turn_the_density_begins_like_a_square_root(name, side):
    """Within it z = x has no real solution but a complex one, and beyond it the real one; in fifty digits."""
    rank, layers = EDGES[name]
    with mpmath.workdps(50):
        z = lambda v: curve(v, rank, layers)[0]  # noqa: E731
        v = turn(z, side)
        end, bend = z(v), mpmath.diff(z, v, 2)
        scales, skips = [layer.s for layer in layers] + [1.0], [layer.b for layer in layers] + [0.0]
        orthogonal = layers[0].orthogonal
        network = Network(
            layers[0].columns,
            [layer.m for layer in layers],
            scales,
            skips,
            [1.0] * len(scales),
            orthogonal,
            np.ones(rank),
        )
        if not orthogonal or all(layer.orthogonal for layer in layers):
            found = edge(network.curve(network.rows), side, 0.7 * rank)
            assert found == pytest.approx(float(end), rel=1e-11)
        for inside in (True, False):
            x = end + (-1 if inside else 1) * side * mpmath.mpf(10) ** -8
            guess = v + mpmath.sqrt(2 * (x - end) / bend) * (1 if inside else -side)
            root = mpmath.findroot(lambda u, x=x: z(u) - x, guess)
            assert abs(root - v) == pytest.approx(float(abs(mpmath.sqrt(2 * (x - end) / bend))), rel=1e-2)
            assert (abs(mpmath.im(root)) > 1e-6 * abs(v)) == inside


@pytest.mark.claim("One turn", verdict="holds")
@instances
@given(seeds, st.booleans())
def test_the_share_of_a_law_falls_towards_its_support(seed, above):
    """alpha = (1 + w) e, e = -d log z / d log w, above the support and between zero and it; laws of any kind."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 6))
    x = np.sort(10.0 ** rng.uniform(-4, 0, count))
    p = 10.0 ** rng.uniform(-5, 0, count)
    p /= p.sum()
    z = (
        x[-1] * (1 + np.geomspace(1e-6, 1e4, 300)[::-1])
        if above
        else x[0] * (1 - np.geomspace(1e-6, 0.9999, 300)[::-1])
    )
    r = x / (z[:, None] - x)
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


@pytest.mark.claim("No eigenvalue outside, other cases", verdict="open")
@pytest.mark.parametrize(
    ("widths", "keywords"),
    [
        ([240] * 4, dict(skip=1.0)),
        ([240, 180, 170, 160], dict(orthogonal=True)),
        ([640] * 12, dict()),
        ([300] * 4, dict(data=np.linspace(0.3, 1, 160))),
    ],
    ids=["skips", "narrowing", "many layers", "data"],
)
def test_no_eigenvalue_was_found_far_outside(widths, keywords):
    keywords = dict(keywords)
    data = keywords.get("data", 160)
    inputs = 160 if "data" in keywords else widths[0]
    others = {name: value for name, value in keywords.items() if name != "data"}
    law = deep_linear(len(widths), widths[1:], data, inputs=inputs, **others)
    rows = 1 + keywords.get("skip", 0.0) ** 2
    weights = [rows ** (len(widths) - 1 - i) for i in range(len(widths))]
    if keywords.get("orthogonal"):
        weights = [1.0] * len(widths)
    values = spectrum([inputs, *widths[1:]], rank=160, weights=weights, seed=1, **keywords)
    assert values[0] > 0.9 * law.lower and values[-1] < 1.1 * law.upper


def ends(t):
    """The stationary points of the closed form, and the values there, in the digits of mpmath."""
    x = mpmath.findroot(
        lambda x: mpmath.diff(lambda y: UPPER["a"](t, y), x), math.sqrt(math.sqrt(0.75 * float(t)) if t < 2 else 1.4)
    )
    ratio = lambda y: y * (mpmath.sin(y) - y * mpmath.cos(y)) / (y * mpmath.sin(y) + 2 * (1 + mpmath.cos(y)))  # noqa: E731
    low, high = mpmath.mpf(0), mpmath.pi
    for _ in range(170):
        middle = (low + high) / 2
        low, high = (middle, high) if ratio(middle) < t else (low, middle)
    return LOWER["a"](t, low / 2), UPPER["a"](t, x)


@pytest.mark.claim("Many layers", verdict="holds")
@pytest.mark.parametrize("t", [0.1, 1.0, 6.0])
def test_the_recursion_tends_to_the_closed_form_like_one_over_the_depth(t):
    with mpmath.workdps(40):
        low, high = map(float, ends(mpmath.mpf(t)))
    assert kappa(t) == pytest.approx(high / low, rel=1e-11)
    wide, off = 10**9, []
    for layers in (100, 200, 400):
        law = deep_linear(layers, wide, round(t * wide / layers), inputs=wide)
        off.append([law.lower / layers - low, law.upper / layers - high])
    off = np.array(off)
    assert off[0] / off[1] == pytest.approx([2, 2], rel=0.05) and off[1] / off[2] == pytest.approx([2, 2], rel=0.03)


@pytest.mark.claim("Few and many layers per width", verdict="holds")
def test_for_small_t_the_law_is_a_semicircle():
    with mpmath.workdps(50):
        for t in map(mpmath.mpf, ("1e-3", "1e-5", "1e-7")):
            low, high = ends(t)
            root = 2 * mpmath.sqrt(t / 3)
            assert abs(high - 1 - root - 3 * t / 5) < 2 * t**1.5 and abs(low - 1 + root - 3 * t / 5) < 2 * t**1.5
            assert abs(high / low - 1 - 2 * root - 8 * t / 3) < 6 * t**1.5


@pytest.mark.claim("Few and many layers per width", verdict="holds")
def test_for_large_t_the_constant_is_the_laplace_limit():
    with mpmath.workdps(50):
        theta = mpmath.findroot(lambda x: x * mpmath.tanh(x) - 1, 1.2)
        limit = theta / mpmath.cosh(theta)
        assert abs(limit * mpmath.exp(mpmath.sqrt(1 + limit**2)) - 1 - mpmath.sqrt(1 + limit**2)) < 1e-45
        assert float(1 / limit**2) == pytest.approx(2.2767, abs=5e-5)
        for t in map(mpmath.mpf, (100, 10_000)):
            low, high = ends(t)
            assert abs(high * limit**2 - t / 2 - 1 + theta**2 / (2 * t)) < 5 / t**2
            assert abs(low - 1 / (2 * t) + mpmath.pi**2 / (8 * t**3)) < 5 / t**4
            last_ = high / low * limit**2 - t**2 - 2 * t
            assert abs(last_ - (mpmath.pi**2 / 4 - theta**2)) < 10 / t
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
@instances
@given(seeds, st.integers(1, 3), st.integers(2, 4))
def test_a_narrow_first_layer_leaves_eigenvalues_of_its_own_term(seed, k, layers):
    rng = np.random.default_rng(seed)
    d = 6
    widths = [d, int(rng.integers(k, d)), *(int(m) for m in rng.integers(k, 9, layers - 2)), k]
    above, below = terms(deep(widths, rng))
    values = np.linalg.eigvalsh(sum(np.kron(a, b) for a, b in zip(above, below, strict=True)))
    own = np.linalg.eigvalsh(above[0])
    assert values[0] == pytest.approx(own[0], rel=1e-6, abs=1e-10 * values[-1])
    for lone in own:
        assert (np.abs(values - lone) < 1e-9 * values[-1]).sum() >= d - widths[1]


@pytest.mark.claim("An eigenvalue of the data apart", verdict="holds")
@pytest.mark.parametrize("spike", [1.15, 4.0, 30.0, 0.05])
def test_an_eigenvalue_apart_lies_where_subordination_is_equal_to_it(spike):
    """On a flat spectrum of one: the outlier is z zeta w / (1 + w) at zeta(w) = spike, w = 1 / (spike - 1)."""
    d, m = 240, 360
    layers = [Layer(m, d), Layer(m, m), Layer(m, m)]
    w = 1 / (spike - 1)
    side = 1 if w > 0 else -1
    v = side * np.geomspace(1e-4, 1e3, 100_000) * d
    z, at = curve(v, d, layers)
    inside = np.cumprod(np.concatenate([side * np.diff(z) < 0, [False]])).astype(bool)
    w_bulk = at[inside] / d
    flat = z[inside] * (1 + 1 / w_bulk) * w_bulk / (1 + w_bulk)  # the data's own zeta is 1 + 1 / w
    reached = side * w < side * w_bulk[-1]
    place = np.interp(side * w, side * w_bulk, flat) * 1.0 if reached else flat[-1]
    data = np.sort(np.r_[np.ones(d - 1), spike])
    drawn = np.mean(
        [spectrum([d, m, m, m], data=data, weights=[1.0] * 4, seed=s)[-1 if side > 0 else 0] for s in range(4)]
    )
    assert drawn == pytest.approx(place, rel=0.07)
    assert getattr(deep_linear(4, m, data), "upper" if side > 0 else "lower") == pytest.approx(place, rel=2e-3)
    assert reached == (spike != 1.15)

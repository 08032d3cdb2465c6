"""What several outputs do to the ends: networks that are drawn against the first order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnlib.laws import deep_linear
from gnlib.laws.network import Network
from gnlib.laws.recursion import last, sensitivity, turn
from tests.gnbook.laws.helpers import Layer, deep, haar, terms
from tests.strategies import instances, seeds


def first_order(network, rank, side):
    """a_l e_l over the end, e_l its derivative by a_l, from the law alone."""
    curve = network.curve(network.rows)
    v = turn(curve, side, 0.7 * rank)
    below = 1 - sensitivity(rank, network.layers(network.rows), v)[::-1]
    return np.diff([0, *below, 1]), last(curve, v).z * network.unit


CASES = {"plain": (4, 120, 480, 3, 0.0), "eight outputs": (8, 80, 960, 4, 0.0), "skips": (4, 120, 480, 4, 1.0)}


@pytest.mark.claim("Several outputs", verdict="holds")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_ends_are_moved_by_the_ends_of_a_small_matrix(case):
    """Where each A_l A_l' deviates by a quarter, the ends move as foretold to a hundredth."""
    k, d, m, layers, beta = case
    above, below = terms(deep([d, *[m] * (layers - 1), k], np.random.default_rng(1), beta))
    weights = [(1 + beta**2) ** (layers - 1 - i) for i in range(layers)]
    whole = np.linalg.eigvalsh(sum(np.kron(a, b) for a, b in zip(above, below, strict=True)))
    one = np.linalg.eigvalsh(sum(w * b for w, b in zip(weights, below, strict=True)))
    network = Network(d, [m] * (layers - 1), [1.0] * layers, [beta] * layers, [1.0] * layers, False, np.ones(d))
    for side, i in ((1, -1), (-1, 0)):
        shares, _ = first_order(network, d, side)
        small = sum(e * (a / w - np.eye(k)) for e, a, w in zip(shares, above, weights, strict=True))
        moved, foretold = whole[i] / one[i] - 1, np.linalg.eigvalsh(small)[i]
        assert moved == pytest.approx(foretold, abs=0.006)
        assert abs(foretold) > 0.025


@pytest.mark.claim("Several outputs", verdict="holds")
def test_the_shares_are_derivatives_of_the_end():
    d, m, layers = 50, 120, 4
    network = Network(d, [m] * 3, [1.0] * layers, [0.0] * layers, [1.0] * layers, False, np.ones(d))
    for side, name in ((1, "upper"), (-1, "lower")):
        shares, end = first_order(network, d, side)
        assert shares.sum() == pytest.approx(1, abs=1e-9) and end == pytest.approx(
            getattr(deep_linear(layers, m, d), name)
        )
        for j in range(2, layers + 1):  # a factor 1 + h of layer j is one of the terms below it
            h, ends = 1e-5, []
            for sign in (1, -1):
                rows = network.rows.copy()
                rows[j - 1] *= 1 + sign * h
                curve = network.curve(rows)
                ends.append(last(curve, turn(curve, side, 35.0)).z * network.unit * (1 + sign * h))
            assert (ends[0] - ends[1]) / (2 * h * end) == pytest.approx(shares[: j - 1].sum(), abs=1e-4)


@pytest.mark.claim("Several outputs", verdict="holds")
@instances
@given(seeds, st.integers(2, 3), st.integers(3, 4))
def test_near_the_edge_each_term_is_nearly_a_multiple(seed, k, layers):
    """For a concave function: states within delta of the top have v' S v within (hC + delta / h) of the derivative."""
    rng = np.random.default_rng(seed)
    a, b = (r @ r.T for r in rng.standard_normal((2, 8, 8)))
    values, vectors = np.linalg.eigh(a)
    top = lambda h: np.linalg.eigvalsh(a + h * b)[-1]  # noqa: E731
    gap = values[-1] - values[-2]
    h = 0.1 * gap / np.linalg.norm(b, 2)
    slope, bend = (top(h) - top(-h)) / (2 * h), abs(top(h) - 2 * top(0) + top(-h)) / h**2
    for count in range(1, 5):
        band = vectors[:, -count:]
        delta = values[-1] - values[-count]
        off = np.linalg.norm(band.T @ b @ band - slope * np.eye(count), 2)
        assert off <= delta / h + 1.1 * h * bend + 1e-9


@pytest.mark.claim("Several outputs", verdict="holds")
@pytest.mark.parametrize(
    "layer", [Layer(300, 300, s=1.3), Layer(300, 300, b=1.0), Layer(300, 200, orthogonal=True)], ids=str
)
def test_what_a_layer_does_to_a_direction_is_a_gaussian_ensemble(layer):
    """M = rho (1 + s X): the variance of X is one off the diagonal and two on it."""
    rng, k = np.random.default_rng(0), 6
    rows, found = haar(rng, k, layer.m), []
    s2 = (1 - (layer.b**2 / layer.rho) ** 2) / layer.columns
    if layer.orthogonal:
        s2 = 1 / layer.columns - 1 / layer.m
    network = Network(
        10, [layer.columns, layer.m], [1.0, layer.s, 1.0], [0.0, layer.b, 0.0], [1.0] * 3, layer.orthogonal, np.ones(10)
    )
    assert network._spread(k)[0] == pytest.approx(s2)
    for _ in range(150):
        w = rows @ layer.draw(rng)
        found.append((w @ w.T / layer.rho - np.eye(k)) / s2**0.5)
    found = np.array(found)
    upper = np.triu_indices(k, 1)
    assert found[:, upper[0], upper[1]].var() == pytest.approx(1, rel=0.1)
    assert found[:, range(k), range(k)].var() == pytest.approx(2, rel=0.15)


@pytest.mark.claim("Several outputs", verdict="holds")
def test_directions_of_many_outputs_fill_a_ball():
    """The vectors (u' X_j u)_j reach 2 sqrt(k) far in each direction, and the ends of the law move by as much."""
    rng, k = np.random.default_rng(0), 400
    x = rng.standard_normal((3, k, k))
    x = (x + x.transpose(0, 2, 1)) / 2**0.5
    for c in ([1.0, 0.0, 0.0], [0.6, -0.8, 0.0], [-0.48, 0.6, 0.64]):
        assert np.linalg.eigvalsh(np.tensordot(c, x, 1))[-1] == pytest.approx(2 * k**0.5, rel=0.05)
    d, m, layers, outputs = 10**6, 4 * 10**6, 4, 40
    network = Network(d, [m] * 3, [1.0] * 4, [0.0] * 4, [1.0] * 4, False, np.ones(d))
    law, one = deep_linear(layers, m, d, outputs=outputs), deep_linear(layers, m, d)
    for side, name in ((1, "upper"), (-1, "lower")):
        shares, _ = first_order(network, d, side)
        norm = np.linalg.norm(np.cumsum(shares)[:-1]) * 2 * (outputs / m) ** 0.5
        assert side * (getattr(law, name) / getattr(one, name) - 1) == pytest.approx(norm, rel=0.1)


@pytest.mark.claim("Several outputs", verdict="holds")
def test_product_vectors_bound_both_ends_from_within():
    above, below = terms(deep([30, 60, 60, 60, 5], np.random.default_rng(3)))
    whole = np.linalg.eigvalsh(sum(np.kron(a, b) for a, b in zip(above, below, strict=True)))
    ends = []
    for side in (-1, 1):
        u, best = np.eye(5)[0], []
        for _ in range(40):  # the best x for u, and the best u for that
            values, x = np.linalg.eigh(sum((u @ a @ u) * b for a, b in zip(above, below, strict=True)))
            best.append(values[0 if side < 0 else -1])
            x = x[:, 0 if side < 0 else -1]
            u = np.linalg.eigh(sum(a * (x @ b @ x) for a, b in zip(above, below, strict=True)))[1]
            u = u[:, 0 if side < 0 else -1]
        assert (side * np.diff(best) >= -1e-12).all()
        ends.append(best[-1])
    assert whole[0] * (1 - 1e-9) <= ends[0] < 1.05 * whole[0] and 0.95 * whole[-1] < ends[1] <= whole[-1] * (1 + 1e-9)

"""What several outputs do to the ends: networks that are drawn against the first order."""

import numpy as np
import pytest

from gnlib.laws import deep_linear
from gnlib.laws.network import Network
from gnlib.laws.recursion import last, sensitivity, turn
from tests.gnbook.laws.helpers import deep, terms


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

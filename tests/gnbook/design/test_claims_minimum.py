"""Sums of positive semi-definite matrices with weights: one minimum, what marks it, and how low it is."""

import numpy as np
import pytest
import scipy
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.gnbook.design.helpers import condition, semidefinite, weighted
from tests.strategies import instances, seeds

WEIGHTS = st.lists(st.floats(0.01, 100.0), min_size=3, max_size=3)
SIZE = 6


@st.composite
def families(draw):
    """Three matrices, of low rank some of them, and some far larger than others."""
    ranks = draw(st.lists(st.integers(1, 8), min_size=3, max_size=3))
    found = semidefinite(draw(seeds) % 2**31, SIZE, ranks)
    return [matrix * draw(st.sampled_from([1e-2, 1.0, 1.0, 1e2])) for matrix in found]


def smooth(matrix, p):
    """The condition number with traces of powers in the place of the ends."""
    values = torch.linalg.eigvalsh(matrix)
    return ((values**p).sum() * (values**-p).sum()).item() ** (1 / p)


def lowest(matrices, of, start):
    """A descent of the logarithm over the logarithms of the weights, by differences of values."""

    def value(logarithms):
        return np.log(of(weighted(matrices, np.exp(logarithms))))

    for _ in range(3):
        start = scipy.optimize.minimize(
            value, start, method="Nelder-Mead", options={"maxiter": 4000, "xatol": 1e-9, "fatol": 1e-12}
        ).x
    return np.exp(start), np.exp(value(start))


@pytest.mark.claim("One minimum", verdict="holds")
@instances
@given(families(), WEIGHTS, WEIGHTS, st.floats(0.05, 0.95))
def test_between_two_points_kappa_is_below_the_larger_value(matrices, one, two, share):
    values = [condition(weighted(matrices, w)) for w in (one, two)]
    assume(max(values) < 1e9)
    between = condition(weighted(matrices, [share * a + (1 - share) * b for a, b in zip(one, two, strict=True)]))
    assert between <= max(values) * (1 + 1e-6)
    if max(values) > 1.01 * min(values):
        assert between < max(values)


@pytest.mark.claim("One minimum", verdict="holds")
@instances
@given(families(), WEIGHTS, WEIGHTS, st.floats(0.05, 0.95), st.sampled_from([1, 2, 5.5, 12]))
def test_so_is_its_smooth_form_which_is_near_it(matrices, one, two, share, p):
    mixed = [share * a + (1 - share) * b for a, b in zip(one, two, strict=True)]
    sums = [weighted(matrices, w) for w in (one, two, mixed)]
    assume(max(map(condition, sums)) < 1e6)
    for matrix in sums:
        kappa = condition(matrix)
        assert kappa * (1 - 1e-6) <= smooth(matrix, p) <= SIZE ** (2 / p) * kappa * (1 + 1e-6)
    first, second, between = (smooth(matrix, p) for matrix in sums)
    assert between <= max(first, second) * (1 + 1e-6)
    if max(first, second) > 1.01 * min(first, second):
        assert between < max(first, second)


@pytest.mark.claim("One minimum", verdict="holds")
@pytest.mark.parametrize("seed", range(4))
def test_descents_from_many_starts_end_at_one_value(seed):
    matrices, draws = semidefinite(seed, SIZE, [6, 5, 8]), np.random.default_rng(seed)
    found = [lowest(matrices, lambda m: smooth(m, 6), draws.normal(0, 2, 3))[1] for _ in range(5)]
    start = smooth(weighted(matrices, [1.0] * 3), 6)
    assert max(found) == pytest.approx(min(found), rel=1e-5) and max(found) < 0.99 * start


def shares(matrices, weights):
    values, vectors = torch.linalg.eigh(weighted(matrices, weights))
    top, bottom = vectors[:, -1], vectors[:, 0]
    of_top = [w * (top @ m @ top / values[-1]).item() for w, m in zip(weights, matrices, strict=True)]
    of_bottom = [w * (bottom @ m @ bottom / values[0]).item() for w, m in zip(weights, matrices, strict=True)]
    return np.array(of_top), np.array(of_bottom)


@pytest.mark.claim("Balance of the ends", verdict="holds")
@instances
@given(families(), WEIGHTS)
def test_the_slope_of_kappa_is_a_difference_of_shares(matrices, weights):
    values = torch.linalg.eigvalsh(weighted(matrices, weights))
    assume(values[-1] < 1e6 * values[0] and values[-1] > 1.05 * values[-2] and values[1] > 1.05 * values[0])
    p, q = shares(matrices, weights)
    assert p.sum() == pytest.approx(1, abs=1e-8) and q.sum() == pytest.approx(1, abs=1e-8)
    for i, change in enumerate(np.eye(3) * 1e-4):
        up, down = (condition(weighted(matrices, np.array(weights) * np.exp(s * change))) for s in (1, -1))
        assert np.log(up / down) / 2e-4 == pytest.approx(p[i] - q[i], abs=1e-4)


@pytest.mark.claim("Balance of the ends", verdict="holds")
def test_at_the_best_gains_the_shares_agree_and_elsewhere_they_do_not():
    """Two matrices whose best sum has simple ends: diagonal but for a small corner."""
    matrices = [torch.diag(torch.tensor(d, dtype=torch.float64)) for d in ([4.0, 1.0, 2.0], [1.0, 0.6, 0.9])]
    corner = torch.zeros(3, 3, dtype=torch.float64)
    corner[0, 1] = corner[1, 0] = 0.7
    matrices[1] = matrices[1] + corner
    weights, kappa = lowest(matrices, condition, np.zeros(2))
    p, q = shares(matrices, weights)
    assert p == pytest.approx(q, abs=1e-3) and 0.05 < p[0] < 0.95
    assert condition(weighted(matrices, [5.0, 1.0])) > 1.05 * kappa
    p, q = shares(matrices, [5.0, 1.0])
    assert np.abs(p - q).max() > 0.02


@pytest.mark.claim("Balance of the ends", verdict="holds")
@instances
@given(families(), WEIGHTS, WEIGHTS)
def test_shares_bound_what_gains_can_do(matrices, weights, others):
    kappa = condition(weighted(matrices, weights))
    assume(kappa < 1e9)
    p, q = shares(matrices, weights)
    assert condition(weighted(matrices, others)) >= kappa * (p / q).min() * (1 - 1e-6)


def density(root):
    return root @ root.mT / root.square().sum()


def certificate(matrices, x, y):
    return min(((m * y).sum() / (m * x).sum()).item() for m in matrices)


@pytest.mark.claim("How much gains can do", verdict="holds")
@instances
@given(families(), seeds, WEIGHTS)
def test_no_gains_are_below_a_certificate(matrices, seed, weights):
    assume(condition(weighted(matrices, weights)) < 1e9)
    x, y = (density(part) for part in semidefinite(seed % 2**31, SIZE, [1, 2]))
    assert condition(weighted(matrices, weights)) >= certificate(matrices, x, y) * (1 - 1e-9)
    _, vectors = torch.linalg.eigh(weighted(matrices, weights))  # a hostile pair, of the ends of this very sum
    x, y = (density(vectors[:, [i]]) for i in (0, -1))
    assert condition(weighted(matrices, [1.0] * 3)) >= certificate(matrices, x, y) * (1 - 1e-6)


@pytest.mark.claim("How much gains can do", verdict="holds")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("p", [4, 24])
def test_at_the_smooth_minimum_the_certificate_is_near(seed, p):
    matrices = semidefinite(seed, SIZE, [6, 5, 8])
    weights, _ = lowest(matrices, lambda m: smooth(m, p), np.zeros(3))
    best = weighted(matrices, weights)
    values, vectors = torch.linalg.eigh(best)
    y, x = (vectors * values ** float(power) @ vectors.mT for power in (p - 1, -p - 1))
    bound = certificate(matrices, x / x.trace(), y / y.trace())
    assert condition(best) * SIZE ** (-1 / p - 1 / (p + 1)) * 0.999 <= bound <= condition(best)

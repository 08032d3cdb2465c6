"""Sums of positive semi-definite matrices with weights, their minimum, and those of linear networks."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from tests.gnbook.design.helpers import chain, condition, jacobians, semidefinite, weighted, with_spectra
from tests.strategies import exact, gaussian, orthogonal, seeds

WEIGHTS = st.lists(st.floats(0.01, 100.0), min_size=3, max_size=3)
SIZE = 6


@st.composite
def families(draw):
    """Three matrices, of low rank some of them, and some far larger than others."""
    ranks = draw(st.lists(st.integers(1, 8), min_size=3, max_size=3))
    found = semidefinite(draw(seeds), SIZE, ranks)
    return [matrix * draw(st.sampled_from([1e-2, 1.0, 1.0, 1e2])) for matrix in found]


@pytest.mark.claim("One minimum", verdict="holds")
@given(families(), WEIGHTS, WEIGHTS, st.floats(0.05, 0.95))
def test_between_two_points_kappa_is_below_the_larger_value(matrices, one, two, share):
    values = [condition(weighted(matrices, w)) for w in (one, two)]
    assume(max(values) < 1e9)
    between = condition(weighted(matrices, [share * a + (1 - share) * b for a, b in zip(one, two, strict=True)]))
    assert between <= max(values) * (1 + 1e-6)
    if max(values) > 1.01 * min(values):
        assert between < max(values)


def shares(matrices, weights):
    values, vectors = torch.linalg.eigh(weighted(matrices, weights))
    top, bottom = vectors[:, -1], vectors[:, 0]
    of_top = [w * (top @ m @ top / values[-1]).item() for w, m in zip(weights, matrices, strict=True)]
    of_bottom = [w * (bottom @ m @ bottom / values[0]).item() for w, m in zip(weights, matrices, strict=True)]
    return np.array(of_top), np.array(of_bottom)


@pytest.mark.claim("Balance of the ends", verdict="holds")
@given(families(), WEIGHTS)
def test_the_slope_of_kappa_is_a_difference_of_shares(matrices, weights):
    values = torch.linalg.eigvalsh(weighted(matrices, weights))
    assume(values[-1] < 1e6 * values[0] and values[-1] > 1.05 * values[-2] and values[1] > 1.05 * values[0])
    p, q = shares(matrices, weights)
    assert p.sum() == pytest.approx(1, abs=1e-8) and q.sum() == pytest.approx(1, abs=1e-8)
    for i, change in enumerate(np.eye(3) * 1e-4):
        up, down = (condition(weighted(matrices, np.array(weights) * np.exp(s * change))) for s in (1, -1))
        assert np.log(up / down) / 2e-4 == pytest.approx(p[i] - q[i], abs=1e-4)


def density(root):
    return root @ root.mT / root.square().sum()


def certificate(matrices, x, y):
    return min(((m * y).sum() / (m * x).sum()).item() for m in matrices)


@pytest.mark.claim("How much gains can do", verdict="holds")
@given(families(), seeds, WEIGHTS)
def test_no_gains_are_below_a_certificate(matrices, seed, weights):
    assume(condition(weighted(matrices, weights)) < 1e9)
    x, y = (density(part) for part in semidefinite(seed, SIZE, [1, 2]))
    assert condition(weighted(matrices, weights)) >= certificate(matrices, x, y) * (1 - 1e-9)
    _, vectors = torch.linalg.eigh(weighted(matrices, weights))  # a hostile pair, of the ends of this very sum
    x, y = (density(vectors[:, [i]]) for i in (0, -1))
    assert condition(weighted(matrices, [1.0] * 3)) >= certificate(matrices, x, y) * (1 - 1e-6)


SPECTRA = st.lists(st.floats(0.1, 10.0), min_size=4, max_size=4).map(sorted)


@pytest.mark.claim("Common ends", verdict="holds")
@given(seeds, SPECTRA, SPECTRA, SPECTRA, WEIGHTS)
def test_with_common_ends_kappa_is_a_mean_of_those_of_the_layers(seed, a, b, c, weights):
    matrices, total = with_spectra(seed, a, b, c), sum(weights)
    kappa, own = condition(weighted(matrices, weights)), [condition(m) for m in matrices]
    ends = [sum(w * s[i] for w, s in zip(weights, (a, b, c), strict=True)) for i in (-1, 0)]
    assert kappa == pytest.approx(ends[0] / ends[1], rel=1e-9)
    assert min(own) * (1 - 1e-9) <= kappa <= max(own) * (1 + 1e-9)
    best = own.index(min(own))
    almost = [total if i == best else 1e-9 for i in range(3)]
    assert condition(weighted(matrices, almost)) == pytest.approx(min(own), rel=1e-5)


def white(seed, d):
    return d**0.5 * orthogonal(seed, d)


def with_weights(*weights):
    network = chain([weights[0].shape[1], *(w.shape[0] for w in weights)], nn.Identity)
    with torch.no_grad():
        for layer, weight in zip(network[::2], weights, strict=True):
            layer.weight.copy_(weight)
    return network


def reduced(network, x, weights):
    """Singular values of the Jacobian with weighted blocks, squared: the kd of them that need not be zero."""
    blocks = [w**0.5 * j for w, j in zip(weights, jacobians(network, x).values(), strict=True)]
    rows = torch.cat(blocks, 1)
    values = torch.linalg.svdvals(rows) ** 2 / len(x)
    return torch.cat([values, values.new_zeros(len(rows))])[: x.shape[1] * network(x).shape[1]]


@pytest.mark.claim("Two linear layers, white data", verdict="holds")
@given(seeds, st.integers(1, 3), st.integers(1, 6), st.floats(0.01, 100.0))
def test_two_linear_layers_on_white_data_are_best_with_one_of_them_frozen(seed, k, m, weight):
    d = 4
    v, w = gaussian(seed, m, d), gaussian(seed + 1, k, m)
    values = reduced(with_weights(v, w), white(seed + 2, d), [1.0, weight])
    a, b = torch.linalg.eigvalsh(w @ w.mT).clamp_min(0), torch.linalg.eigvalsh(v.mT @ v).clamp_min(0)
    expected = (a[:, None] + weight * b).flatten().sort(descending=True).values
    torch.testing.assert_close(values, expected, rtol=1e-7, atol=1e-9 * expected[0].item())
    least = min(condition(w @ w.mT), condition(v.mT @ v))
    if expected[-1] > 1e-9 * expected[0]:
        assert values[0] / values[-1] >= least * (1 - 1e-6)
    if 1e-6 * least < 1:
        frozen = [1.0, 1e-12] if condition(w @ w.mT) == least else [1e-12, 1.0]
        found = reduced(with_weights(v, w), white(seed + 2, d), frozen)
        assert (found[0] / found[-1]).item() == pytest.approx(least, rel=1e-3)


def balanced(seed, k, d, depth, singular):
    """Weights of balanced layers, with the product of these singular values."""
    widths = [d, *[5] * (depth - 1), k]
    bases = [orthogonal(seed + i, width)[:, :k] for i, width in enumerate(widths)]
    roots = exact(singular) ** (1 / depth)
    return [after * roots @ before.mT for before, after in pairwise(bases)]


@pytest.mark.claim("Balanced weights", verdict="holds")
@pytest.mark.parametrize("depth", [2, 3, 5])
@pytest.mark.parametrize("weights", [[1.0] * 5, [0.01, 3.0, 20.0, 0.5, 7.0]])
def test_gains_do_nothing_for_balanced_weights(depth, weights):
    layers = balanced(3, 3, 3, depth, [5.0, 2.0, 0.5])
    for before, after in pairwise(layers):
        torch.testing.assert_close(after.mT @ after, before @ before.mT, rtol=1e-9, atol=1e-9)
    values = reduced(with_weights(*layers), white(9, 3), weights[:depth])
    assert (values[0] / values[-1]).item() == pytest.approx(10 ** (2 * (depth - 1) / depth), rel=1e-7)


@pytest.mark.claim("One layer is best", verdict="fails")
@pytest.mark.parametrize("c", [4.0, 100.0])
def test_two_layers_mend_what_the_data_leave_small(c):
    network, x = with_weights(exact([[0.0, 1.0]]), exact([[1.0]])), (2 * torch.diag(exact([c, 1.0]))) ** 0.5

    def kappa(*weights):
        values = reduced(network, x, weights)
        return (values[0] / values[-1]).item() if values[-1] > 1e-12 else torch.inf

    assert kappa(1.0, 0.0) == pytest.approx(c) and kappa(0.0, 1.0) == torch.inf
    assert kappa(1.0, c - 1) == pytest.approx(1)

"""Bounds on the singular values of a layer with a skip, and on the condition number of residual networks."""

import math

import numpy as np
import pytest
import torch
from gnbook.shared.skips import residual_bound, skip_bounds

from gnlib import second_moment
from tests.oracles import network, normal, orthogonal, with_skip

WIDTHS = [(3, 4), (4, 6, 3), (1, 1, 1), (4, 7, 7, 2), (2, 4, 4, 4, 3), (5, 2, 4), (6, 4, 2)]


@pytest.mark.parametrize("shape", [(5, 5), (8, 5)])
@pytest.mark.parametrize("skip", [-1.0, 0.4, 3.0])
def test_on_a_subspace_only_its_inputs_count(shape, skip):
    weight, q = normal(*shape, seed=4), orthogonal(shape[1], 2, seed=5)
    singular = torch.linalg.svdvals(with_skip(weight, skip) @ q)
    lower, upper = skip_bounds(weight, skip, q)
    assert lower <= singular[-1] and singular[0] <= upper
    whole = skip_bounds(weight, skip)
    assert whole.lower <= lower and upper <= whole.upper
    turned = orthogonal(2, 2, seed=6)
    assert skip_bounds(weight, skip, q @ turned) == pytest.approx((lower, upper))
    assert skip_bounds(weight, skip, torch.eye(shape[1])) == pytest.approx(whole)


def chain(weights, frame, skip):
    """Squared bounds on the products of layers, on the range of the layers before each; zero below after narrowing."""
    pairs = [(1.0, 1.0)]
    for w in weights:
        wide = w.shape[0] < w.shape[1]
        lower, upper = skip_bounds(w, skip) if wide else skip_bounds(w, skip, frame)
        pairs.append((0.0 if wide else pairs[-1][0] * lower**2, pairs[-1][1] * upper**2))
        u, s, _ = torch.linalg.svd(with_skip(w, skip) @ frame, full_matrices=False)
        frame = u[:, s > 1e-12 * s[0]]
    return pairs


@pytest.mark.parametrize("widths", WIDTHS, ids=lambda widths: "-".join(map(str, widths)))
@pytest.mark.parametrize("skip", [0.0, 1.0])
def test_the_bound_for_networks_is_the_ratio_of_sums_of_products(widths, skip):
    weights, x = network(widths, seed=7), normal(12, widths[0], seed=8)
    moment = second_moment(x)
    below = chain(weights[:-1], torch.eye(widths[0], dtype=torch.float64), skip)
    above = chain([w.mT for w in weights[:0:-1]], torch.eye(widths[-1], dtype=torch.float64), skip)[::-1]
    bottom, top = (sum(b[end] * a[end] for b, a in zip(below, above, strict=True)) for end in (0, 1))
    expected = np.linalg.cond(moment.numpy()) * top / bottom if bottom else math.inf
    assert residual_bound(weights, moment, skip) == pytest.approx(expected, rel=1e-8)

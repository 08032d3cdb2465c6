"""Bounds on singular values of a layer with a skip and an activation: formulas of the paper."""

import math

import pytest
import scipy
import torch
from gnbook.adding_the_identity.bounds import (
    hard_bound,
    riedi_theorem_22,
)

from tests.gnbook.adding_the_identity.helpers import singular, starts, taus


def theorem_22(m):
    """Riedi 2022, Theorem 22, as printed, for a batch."""
    s, (low, high) = singular(m), taus(m)
    top, one = (1 + high + s[..., 0] ** 2).clamp_min(0).sqrt(), 1 - s[..., 0]
    second, root = ((1 + low + least).clamp_min(0).sqrt() for least in (s[..., -1] ** 2, 0))
    bounds = (top / one, (1 + s[..., 0]) / one, top / second, (1 + s[..., 0]) / root)
    return [b.where(ok, math.inf) for b, ok in zip(bounds, (one > 0, one > 0, low > -1, low > -1), strict=True)]


@pytest.mark.parametrize("n", range(1, 6))
def test_theorem_22_is_evaluated_as_printed(n):
    for m in torch.cat([starts(n, n, 8) / 4, 3 * starts(n, n, 8)]):
        assert list(riedi_theorem_22(m)) == pytest.approx([b.item() for b in theorem_22(m)], rel=1e-9)


def largest_ratio(r):
    """Return the largest (1 + a) / (1 - b) over the disc of radius r, by search."""
    found = scipy.optimize.minimize_scalar(
        lambda t: -(1 + r * math.cos(t)) / (1 - r * math.sin(t)),
        bounds=(0, math.pi / 2),
        method="bounded",
        options={"xatol": 1e-10},
    )
    return -found.fun


@pytest.mark.parametrize("n", [2, 3, 10])
@pytest.mark.parametrize("part", [0.0, 0.2, 0.7, 0.99])
def test_the_hard_bound_is_the_largest_ratio_over_a_disc(n, part):
    entry = part / n
    assert hard_bound(entry, n) == pytest.approx(largest_ratio(part), rel=1e-9)
    assert hard_bound(entry, n, depth=3) == pytest.approx(largest_ratio(part**3), rel=1e-9)
    assert hard_bound(entry, n, 1, 0.25) == pytest.approx(4 * largest_ratio(part), rel=1e-9)
    assert hard_bound(entry, n, n, 0.25) == hard_bound(entry, n, 0, 0.25) == hard_bound(entry, n)
    kept = math.sqrt((n - 1) / n) * part
    assert hard_bound(entry, n, 1, 0.0) == pytest.approx(largest_ratio(kept) if n > 2 else 1, rel=1e-9)

"""Bounds on singular values of a layer with a skip and an activation: formulas of the paper, edges and refusals."""

import math

import pytest
import scipy
import torch
from gnbook.adding_the_identity.bounds import (
    hard_bound,
    riedi_lemma_29,
    riedi_theorem_22,
    riedi_theorem_31,
    riedi_theorem_32,
    shifted_singular_values,
)
from gnbook.shared.skips import skip_bounds

from tests.gnbook.adding_the_identity.helpers import singular, starts, taus, thousand


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


@thousand
def test_bounds_of_every_singular_value_agree_with_those_of_the_extreme_ones(matrices):
    for m in matrices[::10]:
        for rho in (-1.5, 0.0, 0.8):
            lower, upper = shifted_singular_values(m, rho)
            extreme, slack = skip_bounds(m, rho), 1e-7 * (1 + m.norm().item())
            assert upper[0].item() == pytest.approx(extreme.upper, abs=slack)
            assert lower[-1].item() <= extreme.lower + slack
            expected = singular(m) ** 2 + min(rho * t.item() for t in taus(m)) + rho**2
            torch.testing.assert_close(lower**2, expected.clamp_min(0), rtol=1e-9, atol=slack)


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


def test_a_width_of_one_and_weights_of_zero():
    zero = torch.zeros(3, 3, dtype=torch.float64)
    assert hard_bound(0.9, 1) == hard_bound(0.9, 1, 1, 0.1) == hard_bound(0.0, 4) == 1
    assert riedi_theorem_22(zero) == (1, 1, 1, 1) and riedi_lemma_29(0.5, 1) == (0.5, 1.5)
    assert riedi_theorem_31(0.0, 4, 0) == (1, 1, 1) and riedi_theorem_32(0.0, 4, 0, 0.5) == (1, 1)
    assert [bound.tolist() for bound in shifted_singular_values(zero, -2.0)] == [[2, 2, 2]] * 2


REFUSED = [
    (lambda: hard_bound(0.1, 3, 1, -1.01), r"slopes from -1 \(absolute value\) to 1 \(linear\)"),
    (lambda: riedi_theorem_32(0.1, 3, 1, -0.5), "Theorem 32 is about slopes from 0 to 1"),
    (lambda: riedi_lemma_29(1 / 3, 3), "the bounds are about weights below 1/n"),
    (lambda: hard_bound(0.01, 3, 4), "a part of n = 3 units that leaves something"),
    (lambda: riedi_theorem_31(0.1, 3, 3), "a part of n = 3 units that leaves something"),
    (lambda: hard_bound(0.3, 0), "a part of n = 0 units that leaves something"),
    (lambda: hard_bound(0.1, 3, 1, 0.0, depth=0), "depth is 0; the skip goes around at least 1 layer"),
    (lambda: riedi_theorem_22(torch.ones(1, 3)), "matrix has shape .*; a square matrix was expected"),
]


@pytest.mark.bad_input
@pytest.mark.parametrize(("call", "told"), REFUSED)
def test_arguments_outside_of_the_assumptions_are_refused(call, told):
    with pytest.raises(ValueError, match=told):
        call()

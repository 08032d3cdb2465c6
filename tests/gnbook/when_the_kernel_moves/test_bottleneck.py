"""Bounds for a bottleneck: the floor of its kernel, by hand and in many digits."""

from itertools import pairwise

import mpmath
import pytest
import torch
from gnbook.when_the_kernel_moves.bottleneck import (
    Cubic,
    ball_floor,
    cubics,
    limit_norm,
    vanishing_probability,
)
from gnbook.when_the_kernel_moves.nonlinear_output import liu_theorem_5_1


def vectors(*values):
    return [torch.tensor([value], dtype=torch.float64) for value in values]


def test_the_floor_falls_with_the_radius_and_vanishes_with_both_factors():
    generator = torch.Generator().manual_seed(0)
    h, c = cubics(list(torch.randn(4, 10**5, generator=generator, dtype=torch.float64)), 1.0)
    floors = [ball_floor(h, c, radius) for radius in (0.0, 0.01, 0.1, 0.3, 1.0, 100.0)]
    assert all(a >= b for a, b in pairwise(floors)) and floors[0] > 0 == floors[-1]
    assert ball_floor(*cubics(vectors(1.0, 0.0, 1.0, 0.0), 1.0), 0.0) == 0.0


@pytest.mark.parametrize("radius", [0.0, 0.3, 1.2])
def test_two_linear_factors_give_way_together(radius):
    straight = Cubic(value=1.0, gradient=1.0, largest=0.0, scale=0.0)
    assert ball_floor(straight, straight, radius) == pytest.approx(1 - radius / 2**0.5, rel=1e-9)


def test_limits_against_forty_digits():
    with mpmath.workdps(40):
        share = 1 - mpmath.exp(-mpmath.mpf(7) / 6 * mpmath.mpf(0.3) ** 2)
        matrix = mpmath.matrix([[0, mpmath.mpf(0.4)], [mpmath.mpf(0.4), mpmath.mpf(-1.1)]])
        norm = max(abs(e) for e in mpmath.eigsy(matrix, eigvals_only=True)) * 7 * mpmath.sqrt(7) / 4
    assert vanishing_probability(0.3) == pytest.approx(float(share), rel=1e-14) and vanishing_probability(0.0) == 0
    assert limit_norm(0.4, -1.1) == pytest.approx(float(norm), rel=1e-14)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cubics([torch.ones(n) for n in (1, 1, 3, 3)], 1.0), "four vectors of one length"),
        (lambda: ball_floor(*cubics(vectors(1.0, 2.0, 3.0, 4.0), 1.0), -1.0), "not negative"),
        (lambda: liu_theorem_5_1(torch.eye(2), torch.ones(2), 0.0), "positive lower bound"),
        (lambda: liu_theorem_5_1(torch.ones(2, 2), torch.ones(2), 1.0), "singular in double precision"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()

"""Bounds for a bottleneck: the floor of its kernel by hand, and limits in many digits."""

import mpmath
import pytest
from gnbook.when_the_kernel_moves.bottleneck import (
    Cubic,
    ball_floor,
    limit_norm,
    vanishing_probability,
)


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

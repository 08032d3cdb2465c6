"""Intervals, and extreme eigenvalues of a matrix times its transpose, for the bounds of several chapters."""

import math
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from gnlib.checks import EPS
from gnlib.linear.bounds import extreme_squares


class Interval(NamedTuple):
    """A lower and an upper bound of the same quantity."""

    lower: float
    upper: float


class SpectrumBounds(NamedTuple):
    """Bounds of the smallest and of the largest eigenvalue."""

    smallest: Interval
    largest: Interval

    @property
    def condition(self) -> Interval:
        """Bounds of the condition number; infinite where an end that may be zero stands below."""
        return Interval(ratio(self.largest.lower, self.smallest.upper), ratio(self.largest.upper, self.smallest.lower))


def ratio(top: Tensor | float, bottom: Tensor | float) -> float:
    """Return a ratio that is infinite where the denominator is zero."""
    return float(top / bottom) if bottom > 0 else math.inf


def resolved_squares(matrix: Float[Tensor, "rows columns"]) -> tuple[Tensor, Tensor]:
    """Extreme eigenvalues of `matrix.T @ matrix`; the smallest is zero too where it is nothing but rounding."""
    largest, smallest = extreme_squares(matrix)
    rounding = max(matrix.shape) * EPS
    return largest, smallest.where(smallest > rounding**2 * largest, 0)

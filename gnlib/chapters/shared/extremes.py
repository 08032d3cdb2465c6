"""Intervals, and extreme eigenvalues of a matrix times its transpose, for the bounds of several chapters."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from gnlib.bounds.linear import extreme_squares
from gnlib.checks import EPS


class Interval(NamedTuple):
    """A lower and an upper bound of the same quantity."""

    lower: float
    upper: float


def resolved_squares(matrix: Float[Tensor, "rows columns"]) -> tuple[Tensor, Tensor]:
    """Extreme eigenvalues of `matrix.T @ matrix`; the smallest is zero too where it is nothing but rounding."""
    largest, smallest = extreme_squares(matrix)
    rounding = max(matrix.shape) * EPS
    return largest, smallest.where(smallest > rounding**2 * largest, 0)

"""Extreme eigenvalues of a product of a matrix with its transpose, from the singular values of the matrix."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Interval(NamedTuple):
    """A lower and an upper bound of the same quantity."""

    lower: float
    upper: float


def extreme_squares(matrix: Float[Tensor, "rows columns"]) -> tuple[Tensor, Tensor]:
    """Extreme eigenvalues of `matrix.T @ matrix`; the smallest is zero where there are fewer rows than columns."""
    rows, columns = matrix.shape
    if rows > 2 * columns:
        matrix = torch.linalg.qr(matrix, mode="r").R  # same singular values, not squared
    s = torch.linalg.svdvals(matrix)
    return s[0] ** 2, s[-1] ** 2 if rows >= columns else torch.zeros_like(s[0])


def resolved_squares(matrix: Float[Tensor, "rows columns"]) -> tuple[Tensor, Tensor]:
    """Extreme eigenvalues of `matrix.T @ matrix`; the smallest is zero too where it is nothing but rounding."""
    largest, smallest = extreme_squares(matrix)
    rounding = max(matrix.shape) * torch.finfo(matrix.dtype).eps
    return largest, smallest.where(smallest > rounding**2 * largest, 0)

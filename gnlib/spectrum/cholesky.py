"""Products with the inverse of a positive definite matrix."""

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.spectrum.davidson import Map


def cholesky_solve(factor: Float[Tensor, "*batch n n"], x: Float[Tensor, "*batch n b"]) -> Float[Tensor, "*batch n b"]:
    """Return the solution of `factor factor^T y = x` for lower triangular factors.

    Two triangular solves read the factor where it lies; `torch.cholesky_solve` copies it first.
    """
    y = torch.linalg.solve_triangular(factor, x, upper=False)
    return torch.linalg.solve_triangular(factor.mT, y, upper=True)


def inverse_of(matrix: Float[Tensor, "n n"]) -> Map:
    """Return the product with the inverse of a positive definite matrix."""
    factor = torch.linalg.cholesky(matrix)
    return lambda x: cholesky_solve(factor, x)

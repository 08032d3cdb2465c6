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


def factor_shifted(matrix: Float[Tensor, "n n"], shift: float, sign: int = 1, *, out: Float[Tensor, "n n"]) -> bool:
    """Write the factor of `sign (matrix - shift)`, of a symmetric matrix, into `out`, and say whether there is one.

    It takes least where `out` is the transpose of a contiguous matrix, as LAPACK has it.
    """
    info = torch.empty((), dtype=torch.int32, device=out.device)
    torch.mul(matrix.mT, sign, out=out)
    out.diagonal().sub_(sign * shift)
    torch.linalg.cholesky_ex(out, out=(out, info))
    return not info


def inverse_of(matrix: Float[Tensor, "n n"]) -> Map:
    """Return the product with the inverse of a positive definite matrix."""
    factor = torch.linalg.cholesky(matrix)
    return lambda x: cholesky_solve(factor, x)

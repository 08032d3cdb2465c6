"""Products with the inverse of a positive definite matrix, and of blocks shifted close to an end of the spectrum."""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.eigen.davidson import Map

if TYPE_CHECKING:
    from gnlib.eigen.coupled_blocks import CoupledBlocks

LinAlgError = torch.linalg.LinAlgError  # type: ignore[attr-defined]
RESHIFT_EVERY, QUICK_FACTOR = 3, 10  # steps between shifts; how much smaller the error is after a quick one


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


class ShiftedInverse:
    """The product with the inverses of the blocks, shifted close to an end of the matrix.

    Parameters
    ----------
    blocks
        the matrix
    sign
        1 at the lower end, where `N_i - shift` is to be definite, -1 at the upper end, where `shift - N_i` is
    """

    def __init__(self, blocks: "CoupledBlocks", sign: int) -> None:
        self.blocks, self.sign, self.steps, self.error = blocks, sign, 0, float("inf")

    def __call__(self, x: Float[Tensor, "p b"]) -> Float[Tensor, "p b"]:
        """Return the product, without its part in the null space."""
        rows = self.blocks.split(x).mT  # the columns of a group side by side
        solved = torch.empty_like(rows)
        for factor, group in zip(self.factors, self.blocks.groups, strict=True):
            part = slice(group[0], group[-1] + 1)
            columns = rows[part].flatten(0, 1).mT.to(factor.dtype)
            solved[part] = cholesky_solve(factor, columns).mT.view_as(rows[part])
        return self.blocks.project(self.blocks.join(solved.mT))

    def improve(self, value: float, error: float) -> None:
        """Shift the blocks closer to an end known to this relative error, if the iteration is slow for want of it.

        Errors are a fraction of what they are bounded by; a shift that goes too far is not made.
        """
        self.steps += 1
        slow, self.error = error > self.error / QUICK_FACTOR, error
        shift = value * (1 - self.sign * error / 4)
        closer = abs(value - shift) < abs(value - self.shift) / 4
        if self.blocks.shiftable and self.steps % RESHIFT_EVERY == 0 and slow and closer:
            self.factor(shift)

    def factor(self, shift: float) -> int | None:
        """Factor the shifted blocks; if one is not definite, name its output and leave everything as it was."""
        r, groups = self.blocks.inputs, self.blocks.groups
        factors = self.blocks.block(0).new_empty(len(groups), r, r).mT  # by columns, as LAPACK returns them
        for group, factor in zip(groups, factors, strict=True):
            if not factor_shifted(self.blocks.block(group[0]), shift, self.sign, out=factor):
                return group[0]
        self.factors, self.shift = factors, shift
        return None

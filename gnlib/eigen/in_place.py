r"""Both ends of the spectrum of a symmetric matrix that fills the memory: its Cholesky factor lies where it lies.

The factor L is written over the lower triangle and the diagonal. The strict upper triangle still holds the matrix, and
with a copy of the diagonal gives its products: the residuals are those of the matrix, not of :math:`L L^\top`. At the
end the upper triangle is copied back, so that the matrix is the same to the bit.

The factorisation is the blocked one that reads what is on the left (Golub and Van Loan 2013, Matrix Computations,
section 4.2.9).
"""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.eigen.blocks import BLOCK_COLUMNS, LinAlgError, cholesky_solve, multiply, random_columns
from gnlib.eigen.davidson import ExtremePair, extreme_eigenpair
from gnlib.eigen.result import Limits

PANEL = 256  # columns that are factored together, of which more would multiply too much of the wrong triangle


def largest_pair(matrix: Float[Tensor, "n n"], limits: Limits) -> ExtremePair:
    """Return the largest eigenvalue of a symmetric matrix, by products with a few vectors at a time."""
    start = random_columns(matrix, len(matrix), min(BLOCK_COLUMNS, len(matrix)))
    return extreme_eigenpair(partial(multiply, matrix), start, block=BLOCK_COLUMNS, largest=True, **limits._asdict())


def smallest_pair(matrix: Float[Tensor, "n n"], norm: float, limits: Limits) -> ExtremePair:
    """Return the smallest eigenvalue of a matrix, whose largest is the norm, by inverse iteration, or `LinAlgError`."""
    with InPlaceFactor(matrix) as factor:
        start = factor.solve(random_columns(matrix, len(matrix), min(BLOCK_COLUMNS, len(matrix))))
        options = dict(block=BLOCK_COLUMNS, norm=norm, **limits._asdict())
        return extreme_eigenpair(factor.apply, start, largest=False, precondition=factor.solve, **options)


class InPlaceFactor:
    """The Cholesky factor of a symmetric matrix in its lower triangle, and the matrix in the rest, for a while.

    On entry it raises `LinAlgError` if the matrix is not positive definite up to rounding. On leaving, and also on that
    error, the matrix is what it was; of one that is not symmetric to the bit, its upper triangle is kept.
    """

    def __init__(self, matrix: Float[Tensor, "n n"]) -> None:
        self.matrix, self._diagonal = matrix, matrix.diagonal().clone()

    def __enter__(self) -> "InPlaceFactor":
        """Write the factor."""
        try:
            self._factor()
        except BaseException:  # a keyboard interrupt, too: the caller keeps the matrix
            self._restore()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """Write the matrix back."""
        self._restore()

    def apply(self, x: Float[Tensor, "n b"]) -> Float[Tensor, "n b"]:
        """Return the product of the matrix with the columns of another."""
        y = self._diagonal[:, None] * x
        for start in range(0, len(x), PANEL):
            here, beyond = slice(start, start + PANEL), slice(start + PANEL, None)
            within, right = self.matrix[here, here].triu(1), self.matrix[here, beyond]
            y[here] += within @ x[here] + within.mT @ x[here] + right @ x[beyond]
            y[beyond] += right.mT @ x[here]
        return y

    def solve(self, x: Float[Tensor, "n b"]) -> Float[Tensor, "n b"]:
        """Return the product of the inverse with the columns of a matrix."""
        return cholesky_solve(self.matrix, x)

    def _factor(self) -> None:
        for start in range(0, len(self.matrix), PANEL):
            here = slice(start, start + PANEL)
            panel = self.matrix[start:, here]
            block, below = panel[:PANEL], panel[PANEL:]
            above = block.triu(1)
            panel.addmm_(self.matrix[start:, :start], self.matrix[here, :start].mT, alpha=-1)
            factor, failed = torch.linalg.cholesky_ex(block)
            block.copy_(factor).add_(above)
            if failed:
                raise LinAlgError("The matrix is not positive definite.")
            below.copy_(torch.linalg.solve_triangular(factor.mT, below, upper=True, left=False))

    def _restore(self) -> None:
        for start in range(0, len(self.matrix), PANEL):
            here, beyond = slice(start, start + PANEL), slice(start + PANEL, None)
            within = self.matrix[here, here]
            within.copy_(within.triu(1) + within.triu(1).mT)
            self.matrix[beyond, here] = self.matrix[here, beyond].mT
        self.matrix.diagonal().copy_(self._diagonal)

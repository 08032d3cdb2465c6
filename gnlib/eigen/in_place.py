r"""Both ends of the spectrum of a symmetric matrix that fills the memory: its Cholesky factor lies where it lies.

The factor L is written over the lower triangle and the diagonal. The strict upper triangle still holds the matrix, and
with a copy of the diagonal gives its products: the residuals are those of the matrix, not of :math:`L L^\top`. At the
end the upper triangle is copied back, so that the matrix is the same to the bit.

>>> import torch
>>> matrix = torch.tensor([[4.0, 2.0], [2.0, 5.0]], dtype=torch.float64)
>>> with InPlaceFactor(matrix) as factor:
...     print(factor.matrix, factor.solve(torch.tensor([[8.0], [12.0]], dtype=torch.float64)).mT)
tensor([[2., 2.],
        [1., 2.]], dtype=torch.float64) tensor([[1., 2.]], dtype=torch.float64)
>>> matrix
tensor([[4., 2.],
        [2., 5.]], dtype=torch.float64)

References
----------
G. H. Golub, C. F. Van Loan (2013), Matrix Computations, 4th edition, Johns Hopkins University Press (section 4.2.9, the
blocked factorisation that reads what is on the left).
"""

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.eigen.blocks import BLOCK_COLUMNS, LinAlgError, cholesky_solve
from gnlib.eigen.davidson import ExtremePair, extreme_eigenpair, residual_errors
from gnlib.eigen.result import Limits

PANEL = 256  # columns that are factored together, of which more would multiply too much of the wrong triangle


def largest_pair(matrix: Float[Tensor, "n n"], limits: Limits) -> ExtremePair:
    """Return the largest eigenvalue of a symmetric matrix, by products with a few vectors at a time."""
    return extreme_eigenpair(
        lambda x: (x.mT.contiguous() @ matrix).mT,  # up to three times faster than matrix @ x
        _random_columns(matrix),
        block=BLOCK_COLUMNS,
        largest=True,
        precondition=lambda residual: residual,
        errors=lambda values, residual, _: residual_errors(values, residual),
        tolerance=limits.tolerance,
        max_steps=limits.max_steps,
    )


def smallest_pair(matrix: Float[Tensor, "n n"], norm: float, limits: Limits) -> ExtremePair:
    """Return the smallest eigenvalue of a positive definite matrix, whose largest is the norm, by inverse iteration.

    It raises `LinAlgError` if the matrix is not positive definite up to rounding.
    """
    with InPlaceFactor(matrix) as factor:
        return extreme_eigenpair(
            factor.apply,
            factor.solve(_random_columns(matrix)),
            block=BLOCK_COLUMNS,
            largest=False,
            precondition=factor.solve,
            errors=lambda values, residual, _: residual_errors(values, residual),
            norm=norm,
            tolerance=limits.tolerance,
            max_steps=limits.max_steps,
        )


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


def _random_columns(matrix: Float[Tensor, "n n"]) -> Float[Tensor, "n b"]:
    """Return a few random columns, the same ones at each call."""
    generator = torch.Generator(matrix.device).manual_seed(0)
    size = len(matrix), min(BLOCK_COLUMNS, len(matrix))
    return torch.randn(size, generator=generator, dtype=matrix.dtype, device=matrix.device)

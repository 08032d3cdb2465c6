"""Both ends of the spectrum of a Gram matrix, without the rest of it."""

from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import EPS
from gnlib.eigen.blocks import BLOCK_COLUMNS, CoupledBlocks, LinAlgError, cholesky_solve, combine_ends
from gnlib.eigen.davidson import ExtremePair, eigh_from_end, extreme_eigenpair, multiply, random_columns
from gnlib.eigen.dense import dense_ends
from gnlib.eigen.result import ConditionNumber, Limits, NotConvergedError
from gnlib.eigen.scale import scaled

DENSE_UP_TO = 2000  # size up to which all eigenvalues take hardly longer than two of them
COPIES_OF_BLOCKS = 4  # that the iteration holds: the blocks, their factors, and others while they are made anew
MOST_STEPS = 50  # after which all eigenvalues would have taken no longer
PANEL = 256  # columns that are factored together, of which more would multiply too much of the wrong triangle


class Gram(NamedTuple):
    """A symmetric matrix whose row `i k + a` belongs to output a of sample i, k outputs each; the rank if known.

    The rounding of the type that it was handed over in moves its eigenvalues, relative to the largest of them. If it is
    lent, its lower triangle may hold something else for a while; `spare` bytes may be used beside it.
    """

    matrix: Float[Tensor, "nk nk"]
    outputs: int = 1
    rank: int | None = None
    rounding: float = 0.0
    lent: bool = False
    spare: float = torch.inf

    @property
    def is_small(self) -> bool:
        """Whether all eigenvalues take hardly longer than two of them, and a copy of the matrix fits."""
        return len(self.matrix) <= DENSE_UP_TO and self.has_room(1)

    def has_room(self, copies: float) -> bool:
        """Whether so many copies of the matrix fit."""
        return copies * self.matrix.nbytes <= self.spare


def dense(gram: Gram, limits: Limits) -> ConditionNumber | None:
    """Return both ends from all eigenvalues, or None where there is no room for the copy that they take."""
    return dense_ends(gram.matrix, rank=gram.rank, rounding=gram.rounding) if gram.has_room(1) else None


def iteration(gram: Gram, limits: Limits) -> ConditionNumber | None:
    """Return both ends of the spectrum by a block iteration, or None where that does not work.

    It does not if the smallest eigenvalue is not resolved, as it then takes all of them to tell the rank; or if the
    outputs are coupled too strongly for their blocks to help.
    """
    matrix, exponent = scaled(gram.matrix)
    blocks = GramBlocks(matrix, gram.outputs)
    limits = limits._replace(max_steps=min(limits.max_steps, MOST_STEPS))
    try:
        top = blocks.find_end(largest=True, limits=limits)
        bottom = blocks.find_end(largest=False, norm=top.value, limits=limits)
    except (NotConvergedError, LinAlgError):
        return None
    return _both(top, bottom, len(matrix), exponent, "block iteration on the matrix")


def factor(gram: Gram, limits: Limits) -> ConditionNumber | None:
    """Return both ends of the spectrum from products and the Cholesky factor, or None where that does not work.

    It does not if the smallest eigenvalue is not resolved, or if too many others are close to an end. If the matrix is
    lent, it takes the memory of at most 600 vectors beside it.
    """
    matrix, exponent = scaled(gram.matrix)
    if matrix is gram.matrix and not gram.lent:
        matrix = matrix.clone()
    start = random_columns(matrix, len(matrix), min(BLOCK_COLUMNS, len(matrix)))
    options: dict[str, Any] = dict(block=BLOCK_COLUMNS, **limits._asdict())
    try:
        top = extreme_eigenpair(partial(multiply, matrix), start, largest=True, **options)
        with InPlaceFactor(matrix) as inverse:
            options |= dict(precondition=inverse.solve, norm=top.value)
            bottom = extreme_eigenpair(inverse.apply, inverse.solve(start), largest=False, **options)
    except (NotConvergedError, LinAlgError):
        return None
    return _both(top, bottom, len(matrix), exponent, "Cholesky factor of the matrix")


def _both(top: ExtremePair, bottom: ExtremePair, p: int, exponent: int, method: str) -> ConditionNumber | None:
    """Return both ends of a matrix of full rank p that was divided by a power of two, or None if not resolved."""
    gap = bottom.value / (EPS * top.value)
    rounding = 1 / gap if gap > p else torch.inf
    ends = combine_ends(top, bottom, rank=p, rounding=rounding, method=method)
    return ends.rescale(exponent) if ends.resolved else None


class GramBlocks(CoupledBlocks):
    """A Gram matrix with its blocks of all samples for one output, in the basis of outputs that couples them least.

    That basis is the eigenbasis of the mean over samples of the blocks of all outputs for one sample.
    """

    def __init__(self, matrix: Float[Tensor, "nk nk"], outputs: int) -> None:
        self.matrix = matrix
        self.outputs, self.inputs, self.outermost = outputs, len(matrix) // outputs, set(range(outputs))
        self.groups = [range(i, i + 1) for i in range(outputs)]
        samples = matrix.view(self.inputs, outputs, self.inputs, outputs)
        _, self.rotation = torch.linalg.eigh(torch.einsum("iaib->ab", samples))
        self.blocks = matrix.new_empty(outputs, self.inputs, self.inputs)
        for rows, sample in zip(self.blocks.unbind(1), samples, strict=True):
            rotated = (self.rotation.mT @ sample.flatten(1)).view_as(sample)
            torch.matmul(rotated, self.rotation.mT[:, :, None], out=rows[:, :, None])

    def apply(self, x: Float[Tensor, "p b"]) -> Float[Tensor, "p b"]:  # noqa: D102
        return multiply(self.matrix, x)

    def block(self, i: int) -> Float[Tensor, "r r"]:  # noqa: D102
        return self.blocks[i]

    def split(self, x: Float[Tensor, "p b"]) -> Float[Tensor, "k r b"]:  # noqa: D102
        return (self.rotation.mT @ x.reshape(self.inputs, self.outputs, -1)).transpose(0, 1)

    def join(self, x: Float[Tensor, "k r b"]) -> Float[Tensor, "p b"]:  # noqa: D102
        return (self.rotation @ x.transpose(0, 1)).reshape(len(self.matrix), -1)

    def guess(self, *, largest: bool) -> tuple[float, Float[Tensor, "p b"]]:
        """Project on the vectors at that end of each block."""
        start = self.matrix.new_zeros(self.outputs, self.inputs, self.outputs, min(BLOCK_COLUMNS, self.inputs))
        for i in range(self.outputs):
            start[i, :, i] = self.ritz_vectors(i, BLOCK_COLUMNS, largest=largest)
        start = self.join(start.flatten(2))
        values, vectors = eigh_from_end(start.mT @ self.apply(start), largest=largest)
        return values[0].item(), start @ vectors[:, : self.columns]


class InPlaceFactor:
    """The Cholesky factor of a symmetric matrix in its lower triangle, and the matrix in the rest, for a while.

    The strict upper triangle still holds the matrix, and with a copy of the diagonal gives its products: residuals are
    those of the matrix, not of the factor. At the end the upper triangle is copied back. It is factored by blocks that
    read what is on the left (Golub and Van Loan 2013, Matrix Computations, section 4.2.9).

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

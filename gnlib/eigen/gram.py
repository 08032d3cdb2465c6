"""Both ends of the spectrum of a Gram matrix, without the rest of it."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import EPS
from gnlib.eigen.blocks import BLOCK_COLUMNS, CoupledBlocks, LinAlgError, combine_ends, multiply
from gnlib.eigen.davidson import ExtremePair, eigh_from_end
from gnlib.eigen.dense import dense_ends
from gnlib.eigen.in_place import largest_pair, smallest_pair
from gnlib.eigen.result import ConditionNumber, Limits, NotConvergedError
from gnlib.eigen.scale import scaled

DENSE_UP_TO = 2000  # size up to which all eigenvalues take hardly longer than two of them
COPIES_OF_BLOCKS = 4  # that the iteration holds: the blocks, their factors, and others while they are made anew
MOST_STEPS = 50  # after which all eigenvalues would have taken no longer


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
    try:
        top = largest_pair(matrix, limits)
        bottom = smallest_pair(matrix, top.value, limits)
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

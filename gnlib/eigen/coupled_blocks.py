r"""Both ends of the spectrum of a matrix that is nearly block diagonal, one block an output.

The inverses of the blocks :math:`N_i`, shifted close to the end that is looked for, precondition a block iteration:
half a dozen steps reach 1e-8 where the outputs of a network are coupled weakly. The blocks may be shifted as far as an
end of the whole matrix G and remain definite, because their spectrum lies within that of G.
"""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.eigen.davidson import PATIENCE, ExtremePair, extreme_eigenpair, krylov_space
from gnlib.eigen.ritz_errors import residual_errors
from gnlib.eigen.shifted_inverse import LinAlgError, ShiftedInverse, inverse_of

BLOCK_COLUMNS = 4  # columns that the iteration improves at a time
RANDOM_COLUMNS = 2  # that the search starts from, besides the guess
FAR_SHIFTS = tuple(2.0**i for i in range(60))  # relative distances, where the near ones leave a block indefinite


class CoupledBlocks(ABC):
    """A positive semi-definite matrix G of `outputs` by `outputs` blocks of size `inputs`.

    Attributes
    ----------
    outputs, inputs
        number and size of the blocks on the diagonal
    groups
        consecutive outputs that share a block, the mean of theirs, in the preconditioner
    outermost
        the blocks from which the guess is made
    columns
        number of columns that the iteration improves at a time
    near
        relative distances of the shift from the guess, tried until the blocks are definite
    shiftable
        whether G exceeds a known multiple of its blocks, so that those may be shifted at the lower end
    like
        a tensor of the dtype and on the device of G
    """

    outputs: int
    inputs: int
    groups: list[range]
    outermost: set[int]
    columns: int = BLOCK_COLUMNS
    near: tuple[float, ...] = (0.01, 0.03, 0.1, 0.5)
    shiftable: bool = True
    like: Tensor

    @abstractmethod
    def apply(self, x: Float[Tensor, "p b"]) -> Float[Tensor, "p b"]:
        """Return the product of G with the columns of a matrix."""

    @abstractmethod
    def block(self, i: int) -> Float[Tensor, "r r"]:
        """Return the block of an output in the preconditioner, its null vectors raised to the size of others."""

    @abstractmethod
    def split(self, x: Float[Tensor, "p b"]) -> Float[Tensor, "k r b"]:
        """Return the rows of each output."""

    @abstractmethod
    def join(self, x: Float[Tensor, "k r b"]) -> Float[Tensor, "p b"]:
        """Undo `split`."""

    @abstractmethod
    def guess(self, *, largest: bool) -> tuple[float, Float[Tensor, "p b"]]:
        """Return an approximate end of the spectrum, from within, and columns that nearly contain its eigenvector."""

    def lower_errors(
        self, values: Float[Tensor, " b"], residual: Float[Tensor, "p b"], solved: Float[Tensor, "p b"], shift: float
    ) -> Float[Tensor, " b"]:
        """Return relative errors of the smallest Ritz values, from residuals and these times the shifted inverse."""
        return residual_errors(values, residual)

    def project(self, x: Float[Tensor, "p b"]) -> Float[Tensor, "p b"]:
        """Return the part of the columns outside the null space."""
        return x

    def end(self, *, largest: bool, norm: float = 0.0, tolerance: float, max_steps: int) -> ExtremePair:
        """Return the largest eigenvalue or the smallest that is not zero, with its vector.

        Parameters
        ----------
        largest
            which end
        norm
            the largest eigenvalue, where the smallest is asked for
        tolerance, max_steps
            see `extreme_eigenpair`

        Raises
        ------
        NotConvergedError
            After `max_steps`.
        torch.linalg.LinAlgError
            A block that is singular up to rounding.
        """
        inverse, start = self.prepare(largest=largest, norm=norm)
        return self.iterate(inverse, start, norm=norm, tolerance=tolerance, max_steps=max_steps)

    def prepare(self, *, largest: bool, norm: float = 0.0) -> tuple[ShiftedInverse, Float[Tensor, "p b"]]:
        """Return the inverse of the blocks, shifted close to an end, and columns to search it from."""
        sign = -1 if largest else 1
        value, start = self.guess(largest=largest)
        inverse, known = ShiftedInverse(self, sign), set(self.outermost)
        near, *far = (self.near if largest or self.shiftable else ()) + (FAR_SHIFTS if largest else (1.0,))
        culprit = inverse.factor(value * (1 - sign * near))
        while culprit is not None and culprit not in known:  # the spectrum of this block reaches beyond the guess
            known.add(culprit)
            rows = self.like.new_zeros(self.outputs, self.inputs, min(BLOCK_COLUMNS, self.inputs))
            rows[culprit] = self.ritz_vectors(culprit, BLOCK_COLUMNS, largest=largest)
            found = self.project(self.join(rows))
            values = torch.linalg.eigvalsh(found.mT @ self.raised(found, 0.0 if largest else norm))
            value = max(value, values[-1].item()) if largest else min(value, values[0].item())
            start = torch.cat([start, found], 1)
            culprit = inverse.factor(value * (1 - sign * near))
        if culprit is not None and all(inverse.factor(value * (1 - sign * distance)) is not None for distance in far):
            raise LinAlgError("A block is not positive definite.")

        # Random columns meet every invariant subspace, for an end of the blocks or of the matrix off the guess.
        smooth = probes = inverse(self.random(self.outputs * self.inputs, RANDOM_COLUMNS))
        for _ in range(2):  # else the rounding of its large components would drown a graded lower end
            smooth = inverse(smooth / torch.linalg.vector_norm(smooth, dim=0))
        return inverse, torch.cat([start, smooth, probes], 1)

    def iterate(
        self,
        inverse: ShiftedInverse,
        start: Float[Tensor, "p b"],
        *,
        norm: float = 0.0,
        tolerance: float,
        max_steps: int,
        patience: int = PATIENCE,
    ) -> ExtremePair:
        """Return the pair at the end that the inverse is shifted to; for the arguments see `extreme_eigenpair`."""
        largest = inverse.sign < 0

        def errors(values: Tensor, residual: Tensor, solved: Tensor) -> Tensor:
            if largest:
                return residual_errors(values, residual)
            return self.lower_errors(values, residual, solved, inverse.shift)

        return extreme_eigenpair(
            lambda x: self.raised(x, 0.0 if largest else norm),
            start,
            block=self.columns,
            largest=largest,
            precondition=inverse,
            errors=errors,
            improve=inverse.improve,
            norm=norm,
            tolerance=tolerance,
            max_steps=max_steps,
            patience=patience,
        )

    def raised(self, x: Float[Tensor, "p b"], norm: float) -> Float[Tensor, "p b"]:
        """Return the product with G whose null vectors are raised to an eigenvalue of this size."""
        y = self.apply(x)
        return y + norm * (x - self.project(x)) if norm else y

    def ritz_vectors(self, i: int, number: int, *, largest: bool) -> Float[Tensor, "r q"]:
        """Return vectors at an end of the block of an output."""
        block = self.block(i)
        start = self.random(self.inputs, BLOCK_COLUMNS).to(block)
        space = krylov_space(block.matmul if largest else inverse_of(block), start, 8)
        _, rotation = torch.linalg.eigh(space.mT @ block @ space)
        return space @ (rotation[:, -number:] if largest else rotation[:, :number])

    def random(self, *shape: int) -> Tensor:
        """Return random columns, the same ones at each call."""
        generator = torch.Generator(self.like.device).manual_seed(0)
        return torch.randn(*shape, generator=generator, dtype=self.like.dtype, device=self.like.device)

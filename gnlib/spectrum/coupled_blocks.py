r"""Both ends of the spectrum of a matrix that is nearly block diagonal, one block an output.

The inverses of the blocks :math:`N_i`, shifted close to the end that is looked for, precondition a block iteration:
half a dozen steps reach 1e-8 where the outputs of a network are coupled weakly. The blocks may be shifted as far as an
end of the whole matrix G and remain definite, because their spectrum lies within that of G.
"""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.spectrum.cholesky import cholesky_solve, inverse_of
from gnlib.spectrum.davidson import ExtremePair, extreme_eigenpair, krylov_space

FEW = 4  # columns that the iteration improves at a time
SMOOTHED = 3  # random columns that meet every invariant subspace, for an end that lies off the guess
NEAR = (0.02, 0.1, 0.5)  # relative distances of the shift from the guess, tried until the blocks are definite
FAR = tuple(2.0**i for i in range(60))
AGAIN = 6  # steps, about as many as a factorisation takes the time of, after which the shift is reconsidered


class CoupledBlocks(ABC):
    """A positive semi-definite matrix G of `outputs` by `outputs` blocks of size `inputs`.

    Attributes
    ----------
    outputs, inputs
        number and size of the blocks on the diagonal
    columns
        number of columns that the iteration improves at a time
    shiftable
        whether G exceeds a known multiple of its blocks, so that those may be shifted at the lower end
    like
        a tensor of the dtype and on the device of G
    """

    outputs: int
    inputs: int
    columns: int = FEW
    shiftable: bool = True
    like: Tensor

    @abstractmethod
    def apply(self, x: Float[Tensor, "p b"]) -> Float[Tensor, "p b"]:
        """Return the product of G with the columns of a matrix."""

    @abstractmethod
    def block(self, i: int) -> Float[Tensor, "r r"]:
        """Return a copy of the block of an output on the diagonal, its null vectors raised to the size of others."""

    @abstractmethod
    def split(self, x: Float[Tensor, "p b"]) -> Float[Tensor, "k r b"]:
        """Return the rows of each output."""

    @abstractmethod
    def join(self, x: Float[Tensor, "k r b"]) -> Float[Tensor, "p b"]:
        """Undo `split`."""

    @abstractmethod
    def guess(self, *, largest: bool) -> tuple[float, Float[Tensor, "p b"]]:
        """Return an approximate end of the spectrum, from within, and columns that nearly contain its eigenvector."""

    @abstractmethod
    def errors(
        self,
        values: Float[Tensor, " b"],
        residual: Float[Tensor, "p b"],
        solved: Float[Tensor, "p b"],
        *,
        largest: bool,
        shift: float,
    ) -> Float[Tensor, " b"]:
        """Return relative errors of Ritz values, from their residuals and these times the shifted inverse."""

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

        def raised(x: Float[Tensor, "p b"]) -> Float[Tensor, "p b"]:
            return self.apply(x) + norm * (x - self.project(x))  # null vectors belong to the upper end now

        value, start = self.guess(largest=largest)
        inverse = ShiftedInverse(self, value, largest=largest)
        smooth = self.random(self.outputs * self.inputs, SMOOTHED)
        for _ in range(3):  # else the rounding of its large components would drown a graded lower end
            smooth = inverse(smooth)
            smooth = smooth / torch.linalg.vector_norm(smooth, dim=0)
        return extreme_eigenpair(
            self.apply if largest else raised,
            torch.cat([start, smooth], 1),
            block=self.columns,
            largest=largest,
            precondition=inverse,
            errors=lambda *block: self.errors(*block, largest=largest, shift=inverse.shift),
            improve=inverse.improve,
            norm=norm,
            tolerance=tolerance,
            max_steps=max_steps,
        )

    def ritz_vectors(self, i: int, number: int, *, largest: bool) -> Float[Tensor, "r q"]:
        """Return vectors at an end of the block of an output."""
        block = self.block(i)
        space = krylov_space(block.matmul if largest else inverse_of(block), self.random(self.inputs, 8), 8)
        _, rotation = torch.linalg.eigh(space.mT @ block @ space)
        return space @ (rotation[:, -number:] if largest else rotation[:, :number])

    def random(self, *shape: int) -> Tensor:
        """Return random columns, the same ones at each call."""
        generator = torch.Generator(self.like.device).manual_seed(0)
        return torch.randn(*shape, generator=generator, dtype=self.like.dtype, device=self.like.device)


class ShiftedInverse:
    """The product with the inverses of the blocks, shifted close to an end of the matrix.

    Parameters
    ----------
    blocks
        the matrix
    guess
        its largest or its smallest eigenvalue, approximated from within
    largest
        which of them

    Raises
    ------
    torch.linalg.LinAlgError
        A block that is singular up to rounding.
    """

    def __init__(self, blocks: CoupledBlocks, guess: float, *, largest: bool) -> None:
        self.blocks, self.sign, self.steps = blocks, -1 if largest else 1, 0
        distances = NEAR + FAR if largest else (*NEAR, 1.0) if blocks.shiftable else (1.0,)
        if not any(self._factor(guess * (1 - self.sign * distance)) for distance in distances):
            raise torch.linalg.LinAlgError("A block is not positive definite.")

    def __call__(self, x: Float[Tensor, "p b"]) -> Float[Tensor, "p b"]:
        """Return the product, without its part in the null space."""
        return self.blocks.project(self.blocks.join(cholesky_solve(self.factors, self.blocks.split(x))))

    def improve(self, value: float, error: float) -> None:
        """Shift the blocks up to an end known to this relative error, if the iteration takes long for want of it."""
        self.steps += 1
        shift = value * (1 - self.sign * 2 * error)
        if self.steps % AGAIN == 0 and abs(value - shift) < abs(value - self.shift) / 4 and self.blocks.shiftable:
            self._factor(shift)

    def _factor(self, shift: float) -> bool:
        """Factor the shifted blocks and say whether all are definite; if not, leave everything as it was."""
        factors = self.blocks.like.new_empty(self.blocks.outputs, self.blocks.inputs, self.blocks.inputs)
        for i in range(self.blocks.outputs):
            block = self.sign * self.blocks.block(i)
            block.diagonal().sub_(self.sign * shift)
            factors[i], failed = torch.linalg.cholesky_ex(block)
            if failed:
                return False
        self.factors, self.shift = factors, shift
        return True

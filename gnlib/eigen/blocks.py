r"""Either end of the spectrum of a matrix that is nearly block diagonal, from the inverses of its blocks.

The inverses of the blocks :math:`N_i`, shifted close to the end that is looked for, precondition a block iteration:
half a dozen steps reach 1e-8 where the blocks are coupled weakly. They may be shifted as far as an end of the whole
matrix G and remain definite, because their spectrum lies within the spectrum of G.
"""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import EPS
from gnlib.eigen.davidson import PATIENCE, ExtremePair, Map, extreme_eigenpair, krylov_space, residual_errors
from gnlib.eigen.result import ConditionNumber, Limits

LinAlgError = torch.linalg.LinAlgError  # type: ignore[attr-defined]
BLOCK_COLUMNS = 4  # columns that the iteration improves at a time
RANDOM_COLUMNS = 2  # columns that the search starts from, besides the guess
FAR_SHIFTS = tuple(2.0**i for i in range(60))  # relative distances, where the near ones leave a block indefinite
RESHIFT_EVERY, QUICK_FACTOR = 3, 10  # steps between shifts; how much smaller the error is after a quick one


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
    near_shifts
        relative distances of the shift from the guess, tried until the blocks are definite
    shiftable
        whether G exceeds a known multiple of its blocks, so that those may be shifted at the lower end
    """

    outputs: int
    inputs: int
    groups: list[range]
    outermost: set[int]
    columns: int = BLOCK_COLUMNS
    near_shifts: tuple[float, ...] = (0.01, 0.03, 0.1, 0.5)
    shiftable: bool = True

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

    def apply_deflated(self, x: Float[Tensor, "p b"], norm: float) -> Float[Tensor, "p b"]:
        """Return the product with G whose null vectors are raised to an eigenvalue of this size."""
        y = self.apply(x)
        return y + norm * (x - self.project(x)) if norm else y

    def find_end(self, *, largest: bool, norm: float = 0.0, limits: Limits) -> ExtremePair:
        """Return the largest eigenvalue or, given it as the norm, the smallest that is not zero, with its vector.

        Raises
        ------
        NotConvergedError
            After `limits.max_steps`.
        torch.linalg.LinAlgError
            A block that is singular up to rounding.
        """
        inverse, start = self.prepare(largest=largest, norm=norm)
        return self.iterate(inverse, start, norm=norm, limits=limits)

    def prepare(self, *, largest: bool, norm: float = 0.0) -> tuple["ShiftedInverse", Float[Tensor, "p b"]]:
        """Return the inverse of the blocks, shifted close to an end, and columns to search it from."""
        sign = -1 if largest else 1
        value, start = self.guess(largest=largest)
        inverse, known = ShiftedInverse(self, sign), set(self.outermost)
        near, *far = (self.near_shifts if largest or self.shiftable else ()) + (FAR_SHIFTS if largest else (1.0,))

        def factor(distance: float) -> int | None:
            return inverse.factor(value * (1 - sign * distance))

        # A shift that leaves a block indefinite is good news: the spectrum of that block, and with it the end of G,
        # reaches beyond the guess. Its outermost vectors join the search, and the guess moves to them.
        indefinite = factor(near)
        while indefinite is not None and indefinite not in known:
            known.add(indefinite)
            rows = self.block(0).new_zeros(self.outputs, self.inputs, min(BLOCK_COLUMNS, self.inputs))
            rows[indefinite] = self.ritz_vectors(indefinite, BLOCK_COLUMNS, largest=largest)
            outer = self.project(self.join(rows))
            values = torch.linalg.eigvalsh(outer.mT @ self.apply_deflated(outer, norm))
            value = max(value, values[-1].item()) if largest else min(value, values[0].item())
            start = torch.cat([start, outer], 1)
            indefinite = factor(near)
        if indefinite is not None and all(
            inverse.factor(value * (1 - sign * distance)) is not None for distance in far
        ):
            raise LinAlgError("A block is not positive definite.")

        # Random columns meet every invariant subspace, for an end of the blocks or of the matrix off the guess.
        smooth = probes = inverse(self.random(self.outputs * self.inputs, RANDOM_COLUMNS))
        for _ in range(2):  # else the rounding of its large components would drown a graded lower end
            smooth = inverse(smooth / torch.linalg.vector_norm(smooth, dim=0))
        return inverse, torch.cat([start, smooth, probes], 1)

    def iterate(
        self,
        inverse: "ShiftedInverse",
        start: Float[Tensor, "p b"],
        *,
        norm: float = 0.0,
        limits: Limits,
        patience: int = PATIENCE,
    ) -> ExtremePair:
        """Return the pair at the end that the inverse is shifted to; for the arguments see `extreme_eigenpair`."""
        largest = inverse.sign < 0

        def errors(values: Tensor, residual: Tensor, solved: Tensor) -> Tensor:
            if largest:
                return residual_errors(values, residual)
            return self.lower_errors(values, residual, solved, inverse.shift)

        return extreme_eigenpair(
            lambda x: self.apply_deflated(x, norm),
            start,
            block=self.columns,
            largest=largest,
            precondition=inverse,
            errors=errors,
            improve=inverse.improve,
            norm=norm,
            tolerance=limits.tolerance,
            max_steps=limits.max_steps,
            patience=patience,
        )

    def ritz_vectors(self, i: int, number: int, *, largest: bool) -> Float[Tensor, "r q"]:
        """Return vectors at an end of the block of an output."""
        block = self.block(i)
        space = krylov_space(block.matmul if largest else inverse_of(block), self.random(self.inputs, BLOCK_COLUMNS), 8)
        return outer_vectors(block, space, number, largest=largest)

    def random(self, *shape: int) -> Tensor:
        """Return random columns, the same ones at each call."""
        like = self.block(0)
        generator = torch.Generator(like.device).manual_seed(0)
        return torch.randn(*shape, generator=generator, dtype=like.dtype, device=like.device)


class ShiftedInverse:
    """The product with the inverses of the blocks, shifted close to an end of the matrix.

    The sign is 1 at the lower end, where `N_i - shift` is to be definite, -1 at the upper end, where `shift - N_i` is.
    """

    def __init__(self, blocks: CoupledBlocks, sign: int) -> None:
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


def cholesky_solve(factor: Float[Tensor, "*batch n n"], x: Float[Tensor, "*batch n b"]) -> Float[Tensor, "*batch n b"]:
    """Return the solution of `factor factor^T y = x` for lower triangular factors.

    Two triangular solves read the factor where it lies; `torch.cholesky_solve` copies it first.
    """
    y = torch.linalg.solve_triangular(factor, x, upper=False)
    return torch.linalg.solve_triangular(factor.mT, y, upper=True)


def factor_shifted(matrix: Float[Tensor, "n n"], shift: float, sign: int = 1, *, out: Float[Tensor, "n n"]) -> bool:
    """Write the factor of `sign (matrix - shift)`, of a symmetric matrix, into `out`, and return whether there is one.

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


def outer_vectors(
    block: Float[Tensor, "r r"], space: Float[Tensor, "r s"], number: int, *, largest: bool
) -> Float[Tensor, "r q"]:
    """Return the Ritz vectors of a block in a space that belong to its largest or smallest Ritz values."""
    _, rotation = torch.linalg.eigh(space.mT @ block @ space)
    return space @ (rotation[:, -number:] if largest else rotation[:, :number])


def combine_ends(top: ExtremePair, bottom: ExtremePair, *, rank: int, rounding: float, method: str) -> ConditionNumber:
    """Return the condition number of two extreme pairs; `rounding` adds to the relative error of the smallest."""
    return ConditionNumber(
        largest=top.value,
        smallest=bottom.value,
        rank=rank,
        gap=bottom.value / (EPS * top.value),
        residual=max(top.error, bottom.error + rounding),
        method=f"{method}, {top.steps} and {bottom.steps} steps",
    )

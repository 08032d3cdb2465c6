r"""Either end of the spectrum of a matrix that is nearly block diagonal, from the inverses of its blocks.

The inverses of the blocks :math:`N_i`, shifted close to the end that is looked for, precondition a block iteration:
half a dozen steps reach 1e-8 where the blocks are coupled weakly. They may be shifted as far as an end of the whole
matrix G and remain definite, because their spectrum lies within the spectrum of G.
"""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.eigen.davidson import PATIENCE, ExtremePair, extreme_eigenpair, krylov_space, random_columns, residual_errors
from gnlib.eigen.result import ConditionNumber, Limits, of_ends

LinAlgError = torch.linalg.LinAlgError  # type: ignore[attr-defined]
BLOCK_COLUMNS = 4  # columns that the iteration improves at a time
RANDOM_COLUMNS = 2  # columns that the search starts from, besides the guess
FAR_SHIFTS = tuple(2.0**i for i in range(60))  # relative distances, where the near ones leave a block indefinite
RESHIFT_EVERY, QUICK_FACTOR = 3, 10  # steps between shifts; how much smaller the error is after a quick one


class CoupledBlocks:
    """A positive semi-definite matrix G of blocks, one for each pair of outputs."""

    outputs: int  # number of blocks on the diagonal
    inputs: int  # their size
    groups: list[range]  # consecutive outputs that share a block, the mean of theirs, in the preconditioner
    outermost: set[int]  # outputs from whose blocks the guess is made
    columns: int = BLOCK_COLUMNS  # that the iteration improves at a time
    near_shifts: tuple[float, ...] = (0.01, 0.03, 0.1, 0.5)  # distances from the guess, tried until blocks are definite
    shiftable: bool = True  # whether G exceeds a known multiple of its blocks, so that they may be shifted below, too

    apply: Callable[[Tensor], Tensor]  # the product of G with the columns of a matrix
    block: Callable[[int], Tensor]  # that of an output in the preconditioner, its null vectors raised to others' size
    split: Callable[[Tensor], Tensor]  # columns into the rows of each output, (k, r, b)
    join: Callable[[Tensor], Tensor]  # these into columns
    guess: Callable[..., tuple[float, Tensor]]  # an approximate end from within, and columns near its vector

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
        """Return the largest eigenvalue or, given the norm, the smallest that is not zero; or raise `LinAlgError`."""
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
        if indefinite is not None and all(factor(distance) is not None for distance in far):
            raise LinAlgError("A block is not positive definite.")

        # Random columns meet every invariant subspace, for an end of the blocks or of the matrix off the guess.
        smooth = probes = inverse(random_columns(self.block(0), self.outputs * self.inputs, RANDOM_COLUMNS))
        for _ in range(2):  # else the rounding of its large components would drown a graded lower end
            smooth = inverse(smooth / torch.linalg.vector_norm(smooth, dim=0))
        return inverse, torch.cat([start, smooth, probes], 1)

    def iterate(
        self, inverse: "ShiftedInverse", start: Tensor, *, norm: float = 0.0, limits: Limits, patience: int = PATIENCE
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
            patience=patience,
            **limits._asdict(),
        )

    def ritz_vectors(self, i: int, number: int, *, largest: bool) -> Float[Tensor, "r q"]:
        """Return vectors at an end of the block of an output."""
        block = self.block(i)
        apply = block.matmul if largest else partial(cholesky_solve, torch.linalg.cholesky(block))
        space = krylov_space(apply, random_columns(block, self.inputs, BLOCK_COLUMNS), 8)
        return outer_vectors(block, space, number, largest=largest)


class ShiftedInverse:
    """The product with the inverses of `sign (N_i - shift)`, with the sign 1 at the lower end and -1 at the upper."""

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
        """Shift the blocks closer to an end known to this relative error, if the iteration is slow for want of it."""
        self.steps += 1
        slow, self.error = error > self.error / QUICK_FACTOR, error
        # Errors are a fraction of their bounds; a shift that goes too far leaves a block indefinite and is not made.
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
    """Return the solution of `factor factor^T y = x` for lower triangular factors."""
    # Two triangular solves read the factor where it lies; torch.cholesky_solve copies it first.
    y = torch.linalg.solve_triangular(factor, x, upper=False)
    return torch.linalg.solve_triangular(factor.mT, y, upper=True)


def factor_shifted(matrix: Float[Tensor, "n n"], shift: float, sign: int = 1, *, out: Float[Tensor, "n n"]) -> bool:
    """Write the factor of `sign (matrix - shift)`, for a symmetric matrix, into `out`; return whether there is one."""
    info = torch.empty((), dtype=torch.int32, device=out.device)
    torch.mul(matrix.mT, sign, out=out)
    out.diagonal().sub_(sign * shift)
    torch.linalg.cholesky_ex(out, out=(out, info))
    return not info


def outer_vectors(
    block: Float[Tensor, "r r"], space: Float[Tensor, "r s"], number: int, *, largest: bool
) -> Float[Tensor, "r q"]:
    """Return the Ritz vectors of a block in a space that belong to its largest or smallest Ritz values."""
    _, rotation = torch.linalg.eigh(space.mT @ block @ space)
    return space @ (rotation[:, -number:] if largest else rotation[:, :number])


def combine_ends(top: ExtremePair, bottom: ExtremePair, *, rank: int, rounding: float, method: str) -> ConditionNumber:
    """Return the condition number of two extreme pairs; `rounding` adds to the relative error of the smallest."""
    method = f"{method}, {top.steps} and {bottom.steps} steps"
    return of_ends(top.value, bottom.value, rank, max(top.error, bottom.error + rounding), method)

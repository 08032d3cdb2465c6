r"""A Kronecker sum as coupled blocks, one an output, that are shifted and inverted at either end of its spectrum.

With positive semi-definite factors, :math:`G = \sum_\ell C_\ell \otimes S_\ell` exceeds a multiple of its blocks,
:math:`G \ge \eta \sum_\ell \operatorname{diag}(C_\ell) \otimes S_\ell`, where each :math:`C_\ell` exceeds that multiple
of its diagonal. This slack :math:`\eta` turns residuals into bounds on relative errors of the smallest eigenvalues.
"""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gnlib.checks import EPS
from gnlib.eigen.blocks import BLOCK_COLUMNS, CoupledBlocks, cholesky_solve, factor_shifted, outer_vectors
from gnlib.eigen.davidson import ExtremePair, eigh_from_end, krylov_space, orthonormalise, preconditioned_errors
from gnlib.operators import apply_kronecker_sum

GOOD_SLACK = 0.1  # multiple of its blocks that the sum must exceed for a few columns to do
GUESS_SIZE = 160  # size of the projected problem that gives the guess
CLOSER_SHIFTS = (0.03, 0.003)  # relative distances of the shifts that improve the guess


class NullSpace(NamedTuple):
    """The null space of a Kronecker sum: the outputs where the first factor is zero, times the span of some inputs."""

    outputs: Bool[Tensor, " k"]
    inputs: Float[Tensor, "r b"]


class KroneckerBlocks(CoupledBlocks):
    r"""The matrix :math:`\sum_\ell C_\ell \otimes S_\ell` with its blocks :math:`N_i = \sum_\ell (C_\ell)_{ii} S_\ell`.

    The factors are positive semi-definite, the first one on the left diagonal and ascending.
    """

    near_shifts = (1e-4, 1e-3, 0.01, 0.1, 0.5)

    def __init__(
        self,
        left: Float[Tensor, "L k k"],
        right: Float[Tensor, "L r r"],
        null_space: NullSpace | None = None,
        *,
        largest: bool,
    ) -> None:
        self.left, self.right = left.to(right), right
        self.outputs, self.inputs = left.shape[1], right.shape[1]
        no_outputs = torch.zeros(self.outputs, dtype=torch.bool, device=left.device)
        self.null_space = null_space or NullSpace(no_outputs, right.new_empty(self.inputs, 0))
        null_outputs, null_inputs = self.null_space
        # The outputs are in the order of their blocks in the first term, so that an end of the spectrum belongs to the
        # first or the last of them. Of those far from it an approximate inverse does: groups of them, twice as large
        # with each step away from the end, share the mean of their blocks.
        self.outermost = {0, self.outputs - 1} if null_outputs.any() else {self.outputs - 1 if largest else 0}
        self.groups = _groups(int(null_outputs.sum()), self.outputs, largest)
        # Where the other factors are far from diagonal, their mean over outputs approximates them better.
        diagonal = left.diagonal(dim1=1, dim2=2).clamp_min(0)
        mean = diagonal.mean(1, keepdim=True).expand_as(diagonal)
        shared = [diagonal[:, group].mean(1, keepdim=True).expand(-1, len(group)) for group in self.groups]
        diagonal = torch.cat(shared, 1)
        weights = max((diagonal, mean), key=lambda weights: _slack(left, weights)[0])
        self.slack, self.shiftable = _slack(left, weights)
        first = [group[0] for group in self.groups]
        self.shares = weights[:, first]
        self.shared = (self.shares.mT.to(right) @ right.flatten(1)).unflatten(1, right.shape[1:])
        if null_inputs.shape[1]:  # null vectors are raised, or else the blocks would have no inverse
            null = null_inputs @ null_inputs.mT
            for block in self.shared[: int(null_outputs[first].sum())]:
                block += block.diagonal().mean() * null
        # The ends are clusters of k. Good blocks tell their eigenvalues apart; poor ones have to take them together.
        self.columns = BLOCK_COLUMNS if self.shiftable and self.slack > GOOD_SLACK else BLOCK_COLUMNS + self.outputs

    def apply(self, x: Float[Tensor, "p b"]) -> Float[Tensor, "p b"]:  # noqa: D102
        y = self.product(x.mT.reshape(-1, self.outputs, self.inputs))
        return y.reshape(-1, self.outputs * self.inputs).mT

    def product(self, x: Float[Tensor, "b k r"]) -> Float[Tensor, "b k r"]:
        """Return the sum of the products of a batch of matrices with both factors."""
        return apply_kronecker_sum(self.left, self.right, x)

    def block(self, i: int) -> Float[Tensor, "r r"]:  # noqa: D102
        return next(block for block, group in zip(self.shared, self.groups, strict=True) if i in group)

    def split(self, x: Float[Tensor, "p b"]) -> Float[Tensor, "k r b"]:  # noqa: D102
        return x.reshape(self.outputs, self.inputs, -1)

    def join(self, x: Float[Tensor, "k r b"]) -> Float[Tensor, "p b"]:  # noqa: D102
        return x.reshape(self.outputs * self.inputs, -1)

    def project(self, x: Float[Tensor, "p b"]) -> Float[Tensor, "p b"]:  # noqa: D102
        outputs, inputs = self.null_space
        if not inputs.shape[1]:
            return x
        y = self.split(x)
        return self.join(y - outputs[:, None, None] * (inputs @ (inputs.mT @ y)))

    def guess(self, *, largest: bool) -> tuple[float, Float[Tensor, "p b"]]:
        """Project on all outputs times the inputs that matter at that end of the outermost blocks."""
        number = max(1, GUESS_SIZE // (2 * self.outputs))
        spaces = [self.ritz_vectors(i, number, largest=largest) for i in self.outermost]
        space = orthonormalise(torch.cat(spaces, 1))
        projected = torch.einsum("lij,lab->iajb", self.left, space.mT @ self.right @ space)
        size = self.outputs * space.shape[1]
        if self.null_space.inputs.shape[1]:  # a null vector is no guess
            null = self.null_space.inputs.mT @ space
            outputs = self.null_space.outputs.diag().to(projected)
            norm = torch.linalg.matrix_norm(projected.reshape(size, size))
            projected += norm * torch.einsum("ij,ab->iajb", outputs, null.mT @ null)
        values, vectors = eigh_from_end(projected.reshape(size, size), largest=largest)
        start = space @ vectors[:, : self.columns].reshape(self.outputs, space.shape[1], -1)
        return values[0].item(), self.project(self.join(start))

    def ritz_vectors(self, i: int, number: int, *, largest: bool) -> Float[Tensor, "r q"]:
        """Return vectors at an end of the block of an output, from shifts closer and closer to it where need be."""
        space = super().ritz_vectors(i, number, largest=largest)
        block, sign = self.block(i), -1 if largest else 1
        factor = torch.empty_like(block).mT
        for distance in CLOSER_SHIFTS:
            x = space[:, -1 if largest else 0]
            y = block @ x
            value = (x @ y).item()
            good = torch.linalg.vector_norm(y - value * x) <= self.near_shifts[0] * value
            if good or not factor_shifted(block, (1 - sign * distance) * value, sign, out=factor):
                break
            start = space[:, -BLOCK_COLUMNS:] if largest else space[:, :BLOCK_COLUMNS]
            space = krylov_space(partial(cholesky_solve, factor), start, 5)
            space = outer_vectors(block, space, number, largest=largest)
        return space

    def lower_errors(  # noqa: D102
        self, values: Float[Tensor, " b"], residual: Float[Tensor, "p b"], solved: Float[Tensor, "p b"], shift: float
    ) -> Float[Tensor, " b"]:
        return preconditioned_errors(values, residual, solved, slack=self.slack, shift=shift, proved=self.shiftable)

    def rounding(self, bottom: ExtremePair) -> float:
        """Return the relative error of the smallest eigenvalue by rounding of the factors, in double precision.

        That of the factors as they were made is relative to the sizes of rows and columns; the change of basis adds
        some that is relative to all of a factor on the left.
        """
        c, s = (factor.diagonal(dim1=1, dim2=2).clamp_min(0).sqrt() for factor in (self.left, self.right))
        x = bottom.vectors[:, 0].reshape(self.outputs, self.inputs).to(s)
        made = torch.einsum("li,ir,lr->l", c, x.abs(), s).square()
        seen = ((x @ self.right) * x).sum(2).clamp_min(0).sqrt().sum(1).square()
        turned = torch.linalg.matrix_norm(self.left) * seen
        turned[0] *= self.outputs  # outputs count as null up to so many times the rounding
        return EPS * (made.sum() + turned.sum()).item() / bottom.value


def in_eigenbasis(left: Float[Tensor, "L k k"]) -> tuple[Float[Tensor, " k"], Float[Tensor, "L k k"]]:
    """Return the eigenvalues of the first factor, and all factors in its eigenbasis."""
    mu, basis = torch.linalg.eigh(left[0])
    left = basis.mT @ left @ basis
    left = (left + left.mT) / 2
    left[0] = mu.diag()
    return mu, left


def _groups(null_outputs: int, outputs: int, largest: bool) -> list[range]:
    """Split the outputs, in order, into groups that double in size away from an end; null outputs are apart."""
    groups = []
    for first, last in ((0, null_outputs), (null_outputs, outputs)):
        edges = [0, *(2**i for i in range(outputs) if 2 ** (i + 1) <= last - first), last - first]
        bounds = [last - e for e in reversed(edges)] if largest else [first + e for e in edges]
        groups += [range(a, b) for a, b in pairwise(bounds) if a < b]
    return groups


def _slack(left: Float[Tensor, "L k k"], weights: Float[Tensor, "L k"]) -> tuple[float, bool]:
    """Return the multiple of the block diagonal matrix of these weights that G exceeds, and whether this is certain.

    Where a factor is singular, the smallest of its other eigenvalues is a fair guess and no proof.
    """
    scale = torch.where(weights > 0, weights, torch.inf).rsqrt()
    ratio = torch.linalg.eigvalsh(scale[:, :, None] * left * scale[:, None, :])
    regular = ratio > left.shape[1] * EPS * ratio.max()
    return ratio[regular].min().item(), bool(regular.all())

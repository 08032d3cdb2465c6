r"""A Kronecker sum as coupled blocks."""

from functools import partial
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gnlib.checks import EPS
from gnlib.eigen.coupled_blocks import BLOCK_COLUMNS, CoupledBlocks
from gnlib.eigen.davidson import ExtremePair, krylov_space, orthonormal
from gnlib.eigen.ritz_errors import relative_errors
from gnlib.eigen.shifted_inverse import cholesky_solve, factor_shifted
from gnlib.operators import apply_kronecker_sum

GOOD_SLACK = 0.1  # multiple of its blocks that the sum must exceed for a few columns to do
GUESS_SIZE = 160  # size of the projected problem that gives the guess
CLOSER_SHIFTS = (0.03, 0.003)  # relative distances of the shifts that improve the guess


class KroneckerBlocks(CoupledBlocks):
    r"""The matrix :math:`\sum_\ell C_\ell \otimes S_\ell` with its blocks :math:`N_i = \sum_\ell (C_\ell)_{ii} S_\ell`.

    The outputs are in the order of their block in the first term, so that an end of the spectrum belongs to the first
    or the last of them. Of those far from it an approximate inverse does: groups of them, twice as large with each
    step away from the end, share the mean of their blocks.

    Parameters
    ----------
    left
        (L, k, k) tensor of positive semi-definite factors, the first one diagonal and ascending
    right
        (L, r, r) tensor of positive semi-definite factors
    silent
        (k,) tensor, the outputs for which the first factor is zero
    null_space
        (r, b) tensor with orthonormal columns; times the silent outputs they are the null space
    largest
        the end of the spectrum that is looked for
    """

    near = (1e-4, 1e-3, 0.01, 0.1, 0.5)

    def __init__(
        self,
        left: Float[Tensor, "L k k"],
        right: Float[Tensor, "L r r"],
        silent: Bool[Tensor, " k"],
        null_space: Float[Tensor, "r b"],
        *,
        largest: bool,
    ) -> None:
        self.left = self.like = left.to(right)
        self.right, self.silent, self.null_space = right, silent, null_space
        self.outputs, self.inputs = left.shape[1], right.shape[1]
        self.outermost = {0, self.outputs - 1} if silent.any() else {self.outputs - 1 if largest else 0}
        # Where the other factors are far from diagonal, their mean over outputs approximates them better.
        self.groups = _groups(int(silent.sum()), self.outputs, largest)
        diagonal = left.diagonal(dim1=1, dim2=2).clamp_min(0)
        mean = diagonal.mean(1, keepdim=True).expand_as(diagonal)
        shared = [diagonal[:, group].mean(1, keepdim=True).expand(-1, len(group)) for group in self.groups]
        diagonal = torch.cat(shared, 1)
        weights = max((diagonal, mean), key=lambda weights: _slack(left, weights)[0])
        self.slack, self.shiftable = _slack(left, weights)
        first = [group[0] for group in self.groups]
        self.shares = weights[:, first]
        self.shared = (self.shares.mT.to(right) @ right.flatten(1)).unflatten(1, right.shape[1:])
        if null_space.shape[1]:
            null = null_space @ null_space.mT
            for block in self.shared[: int(silent[first].sum())]:
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
        if not self.null_space.shape[1]:
            return x
        y = self.split(x)
        return self.join(y - self.silent[:, None, None] * (self.null_space @ (self.null_space.mT @ y)))

    def guess(self, *, largest: bool) -> tuple[float, Float[Tensor, "p b"]]:
        """Project on all outputs times the inputs that matter at that end of the outermost blocks."""
        number = max(1, GUESS_SIZE // (2 * self.outputs))
        spaces = [self.ritz_vectors(i, number, largest=largest) for i in self.outermost]
        space = orthonormal(torch.cat(spaces, 1))
        projected = torch.einsum("lij,lab->iajb", self.left, self.between(space))
        size = self.outputs * space.shape[1]
        if self.null_space.shape[1]:  # a null vector is no guess
            null = self.null_space.mT @ space
            silent = self.silent.diag().to(projected)
            top = torch.linalg.matrix_norm(projected.reshape(size, size))
            projected += top * torch.einsum("ij,ab->iajb", silent, null.mT @ null)
        values, vectors = torch.linalg.eigh(projected.reshape(size, size))
        if largest:
            values, vectors = values.flip(0), vectors.flip(1)
        start = space @ vectors[:, : self.columns].reshape(self.outputs, space.shape[1], -1)
        return values[0].item(), self.project(self.join(start))

    def between(self, space: Float[Tensor, "r q"]) -> Float[Tensor, "L q q"]:
        """Return the factors on the right between the columns of a matrix."""
        return space.mT @ self.right @ space

    def ritz_vectors(self, i: int, number: int, *, largest: bool) -> Float[Tensor, "r q"]:
        """Return vectors at an end of the block of an output, from shifts closer and closer to it where need be."""
        space = super().ritz_vectors(i, number, largest=largest)
        block, sign = self.block(i), -1 if largest else 1
        factor = torch.empty_like(block).mT
        for distance in CLOSER_SHIFTS:
            x = space[:, -1 if largest else 0]
            y = block @ x
            value = (x @ y).item()
            good = torch.linalg.vector_norm(y - value * x) <= self.near[0] * value
            if good or not factor_shifted(block, (1 - sign * distance) * value, sign, out=factor):
                break
            start = space[:, -BLOCK_COLUMNS:] if largest else space[:, :BLOCK_COLUMNS]
            space = krylov_space(partial(cholesky_solve, factor), start, 5)
            _, rotation = torch.linalg.eigh(space.mT @ block @ space)
            space = space @ (rotation[:, -number:] if largest else rotation[:, :number])
        return space

    def lower_errors(  # noqa: D102
        self, values: Float[Tensor, " b"], residual: Float[Tensor, "p b"], solved: Float[Tensor, "p b"], shift: float
    ) -> Float[Tensor, " b"]:
        return relative_errors(values, residual, solved, slack=self.slack, shift=shift, proved=self.shiftable)

    def rounding(self, bottom: ExtremePair) -> float:
        r"""Return the relative error of the smallest eigenvalue by rounding of the factors, in double precision.

        That of the factors on the right, and of those on the left as they were made, is relative to the sizes
        :math:`c_i c_j` and :math:`s_a s_b` of rows and columns; the change of basis adds some relative to all of
        :math:`C_\ell`.
        """
        c, s = (factor.diagonal(dim1=1, dim2=2).clamp_min(0).sqrt() for factor in (self.left, self.right))
        x = bottom.vectors[:, 0].reshape(self.outputs, self.inputs).to(s)
        made = torch.einsum("li,ir,lr->l", c, x.abs(), s).square()
        seen = ((x @ self.right) * x).sum(2).clamp_min(0).sqrt().sum(1).square()
        turned = torch.linalg.matrix_norm(self.left) * seen
        turned[0] *= self.outputs  # outputs are silent up to so many times the rounding
        return EPS * (made.sum() + turned.sum()).item() / bottom.value


def in_eigenbasis(left: Float[Tensor, "L k k"]) -> tuple[Float[Tensor, " k"], Float[Tensor, "L k k"]]:
    """Return the eigenvalues of the first factor, and all factors in its eigenbasis."""
    mu, basis = torch.linalg.eigh(left[0])
    left = basis.mT @ left @ basis
    left = (left + left.mT) / 2
    left[0] = mu.diag()
    return mu, left


def _groups(silent: int, outputs: int, largest: bool) -> list[range]:
    """Split the outputs, in order, into groups that double in size away from an end; silent ones are apart."""
    groups = []
    for first, last in ((0, silent), (silent, outputs)):
        edges = [0, *(2**i for i in range(outputs) if 2 ** (i + 1) <= last - first), last - first]
        bounds = [last - e for e in reversed(edges)] if largest else [first + e for e in edges]
        groups += [range(a, b) for a, b in pairwise(bounds) if a < b]
    return groups


def _slack(left: Float[Tensor, "L k k"], weights: Float[Tensor, "L k"]) -> tuple[float, bool]:
    """Return how many times the block diagonal matrix of these weights G is at least, and whether this is certain.

    Where a factor is singular, the smallest of its other eigenvalues is a fair guess and no proof.
    """
    scale = torch.where(weights > 0, weights, torch.inf).rsqrt()
    ratio = torch.linalg.eigvalsh(scale[:, :, None] * left * scale[:, None, :])
    regular = ratio > left.shape[1] * EPS * ratio.max()
    return ratio[regular].min().item(), bool(regular.all())

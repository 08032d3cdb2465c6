r"""Both ends of the spectrum of :math:`G = \sum_\ell C_\ell \otimes S_\ell`, without forming it.

In the eigenbasis of :math:`C_1` the other factors on the left are nearly diagonal too, and G is close to the block
diagonal matrix of the :math:`N_i = \sum_\ell (C_\ell)_{ii} S_\ell`, one block of the size of the data an output. Their
inverses, shifted close to the end that is looked for, precondition a block iteration; half a dozen steps reach 1e-8.
(The spectrum of the blocks lies within that of G, so an end of G is a shift that keeps them definite.)
With two terms of which the last has :math:`C_2 \propto I`, G is block diagonal and its blocks are ordered as the
eigenvalues of :math:`C_1` are: one block has either end.
All of it happens in the eigenbasis of the second moment of the data, where badly conditioned factors are
graded, not rounded: an eigenvalue far below `eps` times the largest keeps its digits.
"""

from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gnlib.checks import EPS, as_float64
from gnlib.eigen.dense import graded_ends, magnitude
from gnlib.eigen.kronecker_blocks import KroneckerBlocks, in_eigenbasis
from gnlib.eigen.result import ConditionNumber, Limits
from gnlib.eigen.shifted_inverse import LinAlgError
from gnlib.operators import KroneckerSum, LayeredSum

DENSE_UP_TO = 300  # size up to which forming the matrix is faster than iterating, and no projection rounds


class Terms:
    """A Kronecker sum with what its methods need to know of it, each found once, when it is first asked for.

    Parameters
    ----------
    op
        the sum, of positive semi-definite factors
    """

    def __init__(self, op: KroneckerSum) -> None:
        self.op = op
        self.size = op.left.shape[1] * op.basis.shape[1]

    @property
    def layered(self) -> LayeredSum:
        """The sum, known to come from layers."""
        assert isinstance(self.op, LayeredSum)
        return self.op

    @cached_property
    def factors(self) -> tuple[Float[Tensor, "L k k"], Float[Tensor, "L r r"], float]:
        """The factors of the terms that are not zero, of usual size, and what the operator is to be multiplied by."""
        left, right = as_float64(self.op.left, "left"), as_float64(self.op.right, "right")
        present = left.flatten(1).any(1) & right.flatten(1).any(1)
        if not present.any():
            raise ValueError("The operator is zero: it has no eigenvalue to divide by. Check the weights and the data.")
        if not present.all():
            left, right = left[present], right[present]
        scales = magnitude(left), magnitude(right)
        left, right = (f if scale == 1 else f / scale for f, scale in zip((left, right), scales, strict=True))
        return left, right, scales[0] * scales[1]

    @cached_property
    def rotated(self) -> Float[Tensor, "L k k"]:
        """The factors on the left in the eigenbasis of the first one, without rounding where an output is silent."""
        mu, left = in_eigenbasis(self.factors[0])
        left[0] *= mu > len(mu) * EPS * mu[-1]
        return left

    @cached_property
    def silent(self) -> Bool[Tensor, " k"]:
        """The outputs for which the first factor is zero."""
        return self.rotated[0].diagonal() == 0

    @cached_property
    def null_space(self) -> Float[Tensor, "r b"]:
        r"""Inputs that with the silent outputs make the null space, :math:`\{X : A_1^\top X = 0, X B_L^\top = 0\}`."""
        last = self.factors[1][-1]
        return _null_space(last) if self.silent.any() else last.new_empty(len(last), 0)


def is_small(terms: Terms, limits: Limits) -> bool:
    """Say whether forming the matrix is faster than anything else."""
    return terms.size <= DENSE_UP_TO


def dense(terms: Terms, limits: Limits) -> ConditionNumber:
    """Return both ends from all eigenvalues of the matrix, which is formed."""
    left, right, scale = terms.factors
    identity = torch.eye(right.shape[1], dtype=right.dtype, device=right.device)
    return graded_ends(KroneckerSum(left, right, identity).dense()).scaled(scale)


def is_regular(terms: Terms, limits: Limits) -> bool:
    """Say whether the null space is the one that follows from the widths: no layer loses rank beyond that."""
    left, right = terms.rotated, terms.factors[1]
    if torch.linalg.cholesky_ex(left[-1]).info or torch.linalg.cholesky_ex(right[0]).info:
        return False  # no network, or one with vanishing products
    return _is_null(left, right, terms.silent, terms.null_space)


def is_block_diagonal(terms: Terms, limits: Limits) -> bool:
    """Say whether the outputs come apart in the eigenbasis of the first factor."""
    left = terms.rotated
    alone = len(left) == 1 or (len(left) == 2 and _is_scalar(left[1]))
    return alone and is_regular(terms, limits)


def blocks(terms: Terms, limits: Limits) -> ConditionNumber | None:
    """Return both ends from those of the first and the last block, as the blocks are ordered."""
    left, (_, right, _), zeros = terms.rotated, terms.factors, int(terms.silent.sum())
    none = terms.null_space[:, :0]
    loud = terms.silent[-1:]  # the last output is never silent
    upper = KroneckerBlocks(left[:, -1:, -1:], right, loud, none, largest=True)
    lower = [KroneckerBlocks(left[:, zeros, None, zeros, None], right, loud, none, largest=False)]
    if zeros and terms.null_space.shape[1] < right.shape[1]:
        lower.append(KroneckerBlocks(left[:, :1, :1], right, terms.silent[:1], terms.null_space, largest=False))
    return _ends(terms, upper, lower, "exact blocks", limits)


def iteration(terms: Terms, limits: Limits) -> ConditionNumber | None:
    """Return both ends by a block iteration that the inverses of the blocks precondition."""
    operand = terms.rotated, terms.factors[1], terms.silent, terms.null_space
    upper, lower = (KroneckerBlocks(*operand, largest=largest) for largest in (True, False))
    return _ends(terms, upper, [lower], "block iteration", limits)


def _ends(
    terms: Terms, upper: KroneckerBlocks, lower: list[KroneckerBlocks], method: str, limits: Limits
) -> ConditionNumber | None:
    tolerance, steps = limits
    try:
        top = upper.end(largest=True, tolerance=tolerance, max_steps=steps)
        found = [(b, b.end(largest=False, norm=top.value, tolerance=tolerance, max_steps=steps)) for b in lower]
    except LinAlgError:  # a block is singular up to rounding
        return None
    blocks, bottom = min(found, key=lambda pair: pair[1].value)
    return ConditionNumber(
        largest=top.value,
        smallest=bottom.value,
        rank=terms.size - int(terms.silent.sum()) * terms.null_space.shape[1],
        gap=bottom.value / (EPS * top.value),
        residual=max(top.error, bottom.error + blocks.rounding(bottom)),
        method=f"{method}, {top.steps} and {bottom.steps} steps",
    ).scaled(terms.factors[2])


def _null_space(matrix: Float[Tensor, "r r"]) -> Float[Tensor, "r b"]:
    """Null space of a matrix that may be graded: that of the matrix scaled to a unit diagonal, scaled back."""
    diagonal = matrix.diagonal()
    scale = torch.where(diagonal > 0, diagonal, 1).rsqrt()
    values, vectors = torch.linalg.eigh(scale[:, None] * matrix * scale)
    return torch.linalg.qr(scale[:, None] * vectors[:, values <= len(values) * EPS * values[-1]]).Q


def _is_null(left: Tensor, right: Tensor, silent: Tensor, null_space: Float[Tensor, "r b"]) -> bool:
    r"""Say whether the operator vanishes on the silent outputs times the null space.

    For a linear network that is its whole null space unless products of layers in between lose more rank than their
    widths say. There is none unless a layer is narrower than both k and r.
    """
    inside = [
        torch.linalg.matrix_norm(c[silent][:, silent]) * torch.linalg.matrix_norm(null_space.mT @ s @ null_space)
        for c, s in zip(left, right, strict=True)
    ]
    whole = torch.linalg.matrix_norm(left) * torch.linalg.matrix_norm(right)
    return bool(max(inside) <= right.shape[1] * EPS * whole.max())


def _is_scalar(matrix: Float[Tensor, "k k"]) -> bool:
    """Say whether a matrix is a multiple of the identity, up to the rounding of a change of basis."""
    k = len(matrix)
    identity = torch.eye(k, dtype=matrix.dtype, device=matrix.device)
    return bool((matrix - matrix[0, 0] * identity).abs().max() <= 10 * k * EPS * matrix[0, 0].abs())

r"""Both ends of the spectrum of :math:`G = \sum_\ell C_\ell \otimes S_\ell`, without forming it.

In the eigenbasis of :math:`C_1` the other factors on the left are nearly diagonal too, and G is close to the block
diagonal matrix of the :math:`N_i = \sum_\ell (C_\ell)_{ii} S_\ell`, whose inverses precondition an iteration.
With two terms of which the last has :math:`C_2 \propto I`, G is block diagonal and its blocks are ordered as the
eigenvalues of :math:`C_1` are: one block has either end.
All of it happens in the eigenbasis of the second moment of the data, where badly conditioned factors are
graded, not rounded: an eigenvalue far below `eps` times the largest keeps its digits.
"""

import math
from functools import cached_property
from itertools import chain

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import EPS, as_float64, as_symmetric
from gnlib.eigen.blocks import LinAlgError, combine_ends
from gnlib.eigen.dense import graded_ends
from gnlib.eigen.kronecker_blocks import KroneckerBlocks, NullSpace, in_eigenbasis
from gnlib.eigen.result import ConditionNumber, Limits
from gnlib.eigen.scale import exponent_of, times_power
from gnlib.operators import KroneckerSum, LayeredSum
from gnlib.refused import Refused

DENSE_UP_TO = 300  # size up to which forming the matrix is faster than iterating, and no projection rounds


class Terms:
    """The positive semi-definite factors of a Kronecker sum, and what its methods derive of them once, when asked."""

    def __init__(self, op: KroneckerSum) -> None:
        self.op = op
        self.size = op.left.shape[1] * op.basis.shape[1]

    @property
    def layered(self) -> LayeredSum:
        """The sum, known to come from layers."""
        assert isinstance(self.op, LayeredSum)
        return self.op

    @cached_property
    def factors(self) -> tuple[Float[Tensor, "L k k"], Float[Tensor, "L r r"], int]:
        """The factors of the terms that are not zero, of usual size, and the exponent that scales their sum back."""
        left, right = as_float64(self.op.left, "left"), as_float64(self.op.right, "right")
        if not isinstance(self.op, LayeredSum):  # whose factors are squares
            left = torch.stack([as_symmetric(c, f"left[{i}]") for i, c in enumerate(left)])
            right = torch.stack([as_symmetric(s, f"right[{i}]") for i, s in enumerate(right)])
        present = left.flatten(1).any(1) & right.flatten(1).any(1)
        if not present.any():
            raise Refused("zero-matrix", "The operator is zero: it has no eigenvalue to divide by. Check the weights.")
        return _of_usual_size(left[present], right[present]) if not present.all() else _of_usual_size(left, right)

    @cached_property
    def rotated(self) -> Float[Tensor, "L k k"]:
        """The factors on the left in the eigenbasis of the first one, its eigenvalues that are rounding set to zero."""
        mu, left = in_eigenbasis(self.factors[0])
        left[0] *= mu > len(mu) * EPS * mu[-1]
        return left

    @cached_property
    def null_space(self) -> NullSpace:
        r"""The null space :math:`\{X : A_1^\top X = 0, X B_L^\top = 0\}` of layers that lose no rank but by width."""
        null_outputs, last = self.rotated[0].diagonal() == 0, self.factors[1][-1]
        null_inputs = _null_space(last) if null_outputs.any() else last.new_empty(len(last), 0)
        return NullSpace(null_outputs, null_inputs)


def dense(terms: Terms, limits: Limits) -> ConditionNumber:
    """Return both ends from all eigenvalues of the matrix, which is formed."""
    left, right, exponent = terms.factors
    identity = torch.eye(right.shape[1], dtype=right.dtype, device=right.device)
    return graded_ends(KroneckerSum(left, right, identity).dense()).rescale(exponent)


def is_regular(terms: Terms, limits: Limits) -> bool:
    """Whether the null space is the one that follows from the widths: no product of layers loses rank beyond that."""
    left, right = terms.rotated, terms.factors[1]
    if torch.linalg.cholesky_ex(left[-1]).info or torch.linalg.cholesky_ex(right[0]).info:
        return False  # no layers, or products of them that vanish
    outputs, inputs = terms.null_space
    inside = [
        torch.linalg.matrix_norm(c[outputs][:, outputs]) * torch.linalg.matrix_norm(inputs.mT @ s @ inputs)
        for c, s in zip(left, right, strict=True)
    ]
    whole = torch.linalg.matrix_norm(left) * torch.linalg.matrix_norm(right)
    return bool(max(inside) <= right.shape[1] * EPS * whole.max())


def is_block_diagonal(terms: Terms, limits: Limits) -> bool:
    """Whether the outputs come apart in the eigenbasis of the first factor."""
    left = terms.rotated
    alone = len(left) == 1 or (len(left) == 2 and _is_scalar(left[1]))
    return alone and is_regular(terms, limits)


def blocks(terms: Terms, limits: Limits) -> ConditionNumber | None:
    """Return both ends from those of the first and the last block, as the blocks are ordered."""
    left, (_, right, _), null_space = terms.rotated, terms.factors, terms.null_space
    zeros = int(null_space.outputs.sum())
    upper = KroneckerBlocks(left[:, -1:, -1:], right, largest=True)
    lower = [KroneckerBlocks(left[:, zeros, None, zeros, None], right, largest=False)]
    if zeros and null_space.inputs.shape[1] < right.shape[1]:
        null_block = NullSpace(null_space.outputs[:1], null_space.inputs)
        lower.append(KroneckerBlocks(left[:, :1, :1], right, null_block, largest=False))
    return _ends(terms, upper, lower, "exact blocks", limits)


def iteration(terms: Terms, limits: Limits) -> ConditionNumber | None:
    """Return both ends by a block iteration that the inverses of the blocks precondition."""
    operand = terms.rotated, terms.factors[1], terms.null_space
    upper, lower = (KroneckerBlocks(*operand, largest=largest) for largest in (True, False))
    return _ends(terms, upper, [lower], "block iteration", limits)


def _ends(
    terms: Terms, upper: KroneckerBlocks, lower: list[KroneckerBlocks], method: str, limits: Limits
) -> ConditionNumber | None:
    try:
        top = upper.find_end(largest=True, limits=limits)
        pairs = [(b, b.find_end(largest=False, norm=top.value, limits=limits)) for b in lower]
    except LinAlgError:  # a block is singular up to rounding
        return None
    blocks, bottom = min(pairs, key=lambda pair: pair[1].value)
    null_outputs, null_inputs = terms.null_space
    rank = terms.size - int(null_outputs.sum()) * null_inputs.shape[1]
    ends = combine_ends(top, bottom, rank=rank, rounding=blocks.rounding(bottom), method=method)
    return ends.rescale(terms.factors[2])


def _of_usual_size(
    left: Float[Tensor, "L k k"], right: Float[Tensor, "L r r"]
) -> tuple[Float[Tensor, "L k k"], Float[Tensor, "L r r"], int]:
    """Return factors of the same terms over a power of two, and its exponent; a small one may stand by a large one."""
    ends = (torch.stack(factor.flatten(1).aminmax(dim=1)) for factor in (left, right))
    sizes = [size.abs().amax(0).tolist() for size in ends]
    if not any(map(exponent_of, chain(*sizes))):
        return left, right, 0
    own, others = ([math.frexp(size)[1] for size in of_factor] for of_factor in sizes)
    whole = max(map(sum, zip(own, others, strict=True)))
    left = torch.stack([times_power(c, -e) for c, e in zip(left, own, strict=True)])
    right = torch.stack([times_power(s, e - whole) for s, e in zip(right, own, strict=True)])
    return left, right, whole


def _null_space(matrix: Float[Tensor, "r r"]) -> Float[Tensor, "r b"]:
    """Null space of a matrix that may be graded: that of the matrix scaled to a unit diagonal, scaled back."""
    diagonal = matrix.diagonal()
    scale = torch.where(diagonal > 0, diagonal, 1).rsqrt()
    values, vectors = torch.linalg.eigh(scale[:, None] * matrix * scale)
    return torch.linalg.qr(scale[:, None] * vectors[:, values <= len(values) * EPS * values[-1]]).Q


def _is_scalar(matrix: Float[Tensor, "k k"]) -> bool:
    """Whether a matrix is a multiple of the identity, up to the rounding of a change of basis."""
    difference = matrix - matrix[0, 0] * torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    return bool(difference.abs().max() <= 10 * len(matrix) * EPS * matrix[0, 0].abs())

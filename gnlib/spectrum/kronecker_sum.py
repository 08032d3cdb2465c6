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

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import as_float64
from gnlib.operators import ChainSum, KroneckerSum
from gnlib.spectrum.chain import chain_ends, suits
from gnlib.spectrum.graded import graded_ends
from gnlib.spectrum.kronecker_blocks import KroneckerBlocks, in_eigenbasis
from gnlib.spectrum.magnitude import magnitude
from gnlib.spectrum.narrow import is_narrow, with_complement, within_first_layer
from gnlib.spectrum.result import ConditionNumber

EPS = torch.finfo(torch.float64).eps
SMALL = 300  # size up to which forming the matrix is faster than iterating, and safe from the rounding of a projection


def kronecker_sum_ends(op: KroneckerSum, *, tolerance: float, max_steps: int) -> ConditionNumber:
    """Return both ends of the spectrum of a Kronecker sum of positive semi-definite factors."""
    if isinstance(op, ChainSum) and is_narrow(op, tolerance):
        within = kronecker_sum_ends(within_first_layer(op), tolerance=tolerance, max_steps=max_steps)
        return with_complement(within, op)
    if isinstance(op, ChainSum) and suits(op):
        found = chain_ends(op, tolerance=tolerance, max_steps=max_steps)
        if found:
            return found
    left, right = as_float64(op.left, "left"), as_float64(op.right, "right")
    present = left.flatten(1).any(1) & right.flatten(1).any(1)
    if not present.any():
        raise ValueError("The operator is zero: it has no eigenvalue to divide by. Check the weights and the data.")
    if not present.all():
        left, right = left[present], right[present]
    scales = magnitude(left), magnitude(right)
    left, right = (f if scale == 1 else f / scale for f, scale in zip((left, right), scales, strict=True))
    found = _ends(left, right, tolerance, max_steps)
    return replace(
        found, largest=found.largest * scales[0] * scales[1], smallest=found.smallest * scales[0] * scales[1]
    )


def _ends(
    left: Float[Tensor, "L k k"], right: Float[Tensor, "L r r"], tolerance: float, max_steps: int
) -> ConditionNumber:
    k, r = left.shape[1], right.shape[1]
    if k * r <= SMALL:
        return _formed(left, right)
    mu, left = in_eigenbasis(left)
    silent = mu <= k * EPS * mu[-1]
    left[0] *= ~silent  # with no rounding of large entries where others vanish
    # for a linear network the null space is {X : A_1^T X = 0, X B_L^T = 0}
    kernel = _kernel(right[-1]) if silent.any() else right.new_empty(r, 0)
    definite = not (torch.linalg.cholesky_ex(left[-1]).info or torch.linalg.cholesky_ex(right[0]).info)
    if not (definite and _is_null(left, right, silent, kernel)):  # no network, or one with vanishing products
        return _formed(left, right)

    if len(left) == 1 or (len(left) == 2 and _is_scalar(left[1])):
        method = "exact blocks"
        zeros = int(silent.sum())
        last, first = left[:, -1:, -1:], left[:, zeros, None, zeros, None]
        upper = KroneckerBlocks(last, right, silent[-1:], kernel[:, :0], largest=True)
        lower = [KroneckerBlocks(first, right, silent[-1:], kernel[:, :0], largest=False)]
        if zeros and kernel.shape[1] < r:
            lower.append(KroneckerBlocks(left[:, :1, :1], right, silent[:1], kernel, largest=False))
    else:
        method = "block iteration"
        upper = KroneckerBlocks(left, right, silent, kernel, largest=True)
        lower = [KroneckerBlocks(left, right, silent, kernel, largest=False)]
    limits = {"tolerance": tolerance, "max_steps": max_steps}
    try:
        top = upper.end(largest=True, **limits)
        found = [(blocks, blocks.end(largest=False, norm=top.value, **limits)) for blocks in lower]
    except torch.linalg.LinAlgError:  # a block is singular up to rounding
        return _formed(left, right)
    blocks, bottom = min(found, key=lambda pair: pair[1].value)
    return ConditionNumber(
        largest=top.value,
        smallest=bottom.value,
        rank=k * r - int(silent.sum()) * kernel.shape[1],
        gap=bottom.value / (EPS * top.value),
        residual=max(top.error, bottom.error + blocks.rounding(bottom)),
        method=f"{method}, {top.steps} and {bottom.steps} steps",
    )


def _formed(left: Float[Tensor, "L k k"], right: Float[Tensor, "L r r"]) -> ConditionNumber:
    identity = torch.eye(right.shape[1], dtype=right.dtype, device=right.device)
    return graded_ends(KroneckerSum(left, right, identity).dense())


def _kernel(matrix: Float[Tensor, "r r"]) -> Float[Tensor, "r b"]:
    """Null space of a matrix that may be graded: that of the matrix scaled to a unit diagonal, scaled back."""
    diagonal = matrix.diagonal()
    scale = torch.where(diagonal > 0, diagonal, 1).rsqrt()
    values, vectors = torch.linalg.eigh(scale[:, None] * matrix * scale)
    return torch.linalg.qr(scale[:, None] * vectors[:, values <= len(values) * EPS * values[-1]]).Q


def _is_null(left: Tensor, right: Tensor, silent: Tensor, kernel: Float[Tensor, "r b"]) -> bool:
    r"""Say whether the operator vanishes on the silent outputs times the kernel.

    For a linear network that is its whole null space unless products of layers in between lose more rank than their
    widths say. There is none unless a layer is narrower than both k and r.
    """
    inside = [
        torch.linalg.matrix_norm(c[silent][:, silent]) * torch.linalg.matrix_norm(kernel.mT @ s @ kernel)
        for c, s in zip(left, right, strict=True)
    ]
    whole = torch.linalg.matrix_norm(left) * torch.linalg.matrix_norm(right)
    return bool(max(inside) <= right.shape[1] * EPS * whole.max())


def _is_scalar(matrix: Float[Tensor, "k k"]) -> bool:
    """Say whether a matrix is a multiple of the identity, up to the rounding of a change of basis."""
    k = len(matrix)
    identity = torch.eye(k, dtype=matrix.dtype, device=matrix.device)
    return bool((matrix - matrix[0, 0] * identity).abs().max() <= 10 * k * EPS * matrix[0, 0].abs())

r"""Both ends of the spectrum of the Gauss-Newton matrix of a wide and deep linear network.

The factors :math:`S_\ell = B_\ell^\top B_\ell` cost more than the iteration that uses them, and in single precision
half as much. So the iteration is made in single precision, blocks and their factors included, as far as that goes, and
then goes on from the vectors that it found with products through the layers of the network, in double precision: on
these alone the accuracy of the eigenvalues rests.

How far the blocks N of single precision are off is measured relative to the first term, which is exact:
:math:`N \ge (C_1)_{ii} D^2` with :math:`D^2 = S_1` diagonal, so that data may be graded.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import EPS
from gnlib.eigen.coupled_blocks import BLOCK_COLUMNS
from gnlib.eigen.davidson import ExtremePair
from gnlib.eigen.kronecker_blocks import KroneckerBlocks, in_eigenbasis
from gnlib.eigen.kronecker_sum import Terms
from gnlib.eigen.result import ConditionNumber, Limits, NotConvergedError
from gnlib.eigen.shifted_inverse import LinAlgError
from gnlib.operators import LayeredSum

SINGLE = torch.finfo(torch.float32).eps
WIDE_FROM = 500  # size of the data from which the factors cost more than the iteration
LEAST_ROOT = 1e-4  # smallest over largest root of an eigenvalue of the data; smaller squares are lost in single
MOST_ROUNDING = 0.1  # rounding of the blocks beyond which single precision is given up
POWER_STEPS, POWER_MARGIN = 2, 4  # that many steps reach half the norm of a random matrix, all of one of low rank
ROUNDING_MARGIN = 2  # for the rounding of the errors that single precision finds
FITS_SINGLE = 1e15  # entries of the factors whose products stay far from the ends of single precision


def applies(terms: Terms, limits: Limits) -> bool:
    """Say whether there are layers to go through."""
    return isinstance(terms.op, LayeredSum)


def pays(terms: Terms, limits: Limits) -> bool:
    """Say whether forming the factors in double precision is likely to be a waste."""
    op = terms.layered
    if len(op.roots) < WIDE_FROM or len(op.weights) < 2 or max(map(len, op.weights)) > 2 * len(op.roots):
        return False
    return bool(op.roots.min() >= LEAST_ROOT * op.roots.max())


def ends(terms: Terms, limits: Limits) -> ConditionNumber | None:
    """Return both ends, or None where single precision is too coarse for the lower one."""
    op, (tolerance, steps) = terms.layered, limits
    mu, left = in_eigenbasis(op.left)
    k, r = len(mu), len(op.roots)
    if mu[0] <= k * EPS * mu[-1]:
        return None
    right = op.squares(torch.float32)
    extremes = right.diagonal(dim1=1, dim2=2).amax(1)
    if not (extremes.min() > 1 / FITS_SINGLE and extremes.max() < FITS_SINGLE):
        return None
    lower = LayeredBlocks(op, left, right, largest=False)
    off = lower.rounding_of_blocks()
    if off > MOST_ROUNDING:
        return None
    lower.slack *= 1 - off
    try:
        upper = LayeredBlocks(op, left, right, largest=True)
        top = upper.end(largest=True, tolerance=tolerance, max_steps=steps)
        bottom = lower.end(largest=False, norm=top.value, tolerance=tolerance, max_steps=steps)
    except (LinAlgError, NotConvergedError):
        return None
    return ConditionNumber(
        largest=top.value,
        smallest=bottom.value,
        rank=k * r,
        gap=bottom.value / (EPS * top.value),
        residual=max(top.error, bottom.error + lower.rounding(bottom)),
        method=f"block iteration through the layers, {top.steps} and {bottom.steps} steps",
    )


class LayeredBlocks(KroneckerBlocks):
    """A Kronecker sum in single precision whose products with columns of doubles go through the layers.

    Parameters
    ----------
    op
        the sum
    left
        (L, k, k) tensor, its factors on the left in the eigenbasis of the first one
    right
        (L, r, r) tensor, its factors on the right in single precision
    largest
        the end of the spectrum that is looked for
    """

    def __init__(
        self, op: LayeredSum, left: Float[Tensor, "L k k"], right: Float[Tensor, "L r r"], *, largest: bool
    ) -> None:
        silent = torch.zeros(left.shape[1], dtype=torch.bool, device=left.device)
        super().__init__(left, right, silent, right.new_empty(right.shape[1], 0), largest=largest)
        self.op, self.exact = op, left

    def product(self, x: Float[Tensor, "b k r"]) -> Float[Tensor, "b k r"]:
        """Return the product in the precision of the matrices."""
        return self.op.through_layers(x, self.exact) if x.dtype == torch.float64 else super().product(x)

    def end(self, *, largest: bool, norm: float = 0.0, tolerance: float, max_steps: int) -> ExtremePair:
        """Return an end, in single precision until rounding stops it and then in double."""
        inverse, start = self.prepare(largest=largest)
        coarse = tolerance / ROUNDING_MARGIN
        rough = self.iterate(inverse, start, norm=norm, tolerance=coarse, max_steps=max_steps, patience=0)
        exact = self.iterate(inverse, rough.vectors.double(), norm=norm, tolerance=tolerance, max_steps=max_steps)
        return exact._replace(steps=rough.steps + exact.steps)

    def rounding_of_blocks(self) -> float:
        """Return a bound on what the blocks and their factors are off, relative to their first term.

        That of the blocks is measured by power iteration; that of a factor follows the diagonal of its block (Demmel).
        """
        exact = torch.diag_embed(self.shares)
        x = self.random(BLOCK_COLUMNS, len(self.shared), self.inputs).double()
        for _ in range(POWER_STEPS):
            x = x / torch.linalg.vector_norm(x, dim=2, keepdim=True) / self.op.roots
            rounded = x.transpose(0, 1).to(self.shared) @ self.shared
            x = (self.op.through_layers(x, exact) - rounded.transpose(0, 1)) / self.op.roots
        blocks = POWER_MARGIN * torch.linalg.vector_norm(x, dim=2).amax(0)
        factors = (self.inputs**0.5 * SINGLE * self.shared.diagonal(dim1=1, dim2=2) / self.op.roots**2).amax(1)
        return ((blocks + factors) / self.shares[0]).max().item()

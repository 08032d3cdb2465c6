r"""Both ends of the spectrum of a Kronecker sum made of layers: wide and deep ones, or a first one that is narrow.

**Wide layers.** The factors :math:`S_\ell = B_\ell^\top B_\ell` cost more than the iteration that uses them, and in
single precision half as much. So the iteration runs in single precision, blocks and their factors included, as far as
rounding lets it, and then goes on from its vectors with products through the layers, in double precision.

**White data beyond the first layer.** With data of second moment :math:`s I` and :math:`W_1 = R^\top Q^\top` of m rows,
every factor but the first vanishes on the complement of the range of Q. There the matrix is :math:`s\, C_1 \otimes I`,
whose eigenvalues would be so large a cluster that no iteration settles on it; on the range it is that of layers with
first weight :math:`R^\top`, on white data of m dimensions.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import EPS, numerical_rank
from gnlib.eigen.blocks import BLOCK_COLUMNS, LinAlgError, combine_ends
from gnlib.eigen.davidson import ExtremePair, random_columns
from gnlib.eigen.kronecker_blocks import KroneckerBlocks, in_eigenbasis
from gnlib.eigen.kronecker_sum import Terms
from gnlib.eigen.result import ConditionNumber, Limits, NotConvergedError, of_ends
from gnlib.eigen.scale import scaled
from gnlib.operators import LayeredSum

SINGLE = torch.finfo(torch.float32).eps
WIDE_FROM = 500  # size of the data from which the factors cost more than the iteration
LEAST_ROOT = 1e-4  # smallest over largest root of an eigenvalue of the data; smaller squares are lost in single
MOST_ROUNDING = 0.1  # rounding of the blocks beyond which single precision is given up
POWER_STEPS, POWER_MARGIN = 2, 4  # that many steps reach half the norm of a random matrix, all of one of low rank
ROUNDING_MARGIN = 2  # for the rounding of the errors that single precision computes
FITS_SINGLE = 1e15  # entries of the factors whose products stay far from the ends of single precision
WHITE_SHARE = 0.1  # of the tolerance, left to data that are not quite white


def is_wide(terms: Terms, limits: Limits) -> bool:
    """Whether forming the factors in double precision is likely to cost more than the iteration."""
    op = terms.layered
    if len(op.roots) < WIDE_FROM or len(op.weights) < 2 or max(map(len, op.weights)) > 2 * len(op.roots):
        return False
    return bool(op.roots.min() >= LEAST_ROOT * op.roots.max())


def iteration(terms: Terms, limits: Limits) -> ConditionNumber | None:
    """Return both ends, or None where single precision is too coarse for the lower one."""
    op = terms.layered
    left, exponent = scaled(op.left)
    mu, left = in_eigenbasis(left)
    k, r = len(mu), len(op.roots)
    if mu[0] <= k * EPS * mu[-1]:
        return None
    right = op.form_right(torch.float32)
    extremes = right.diagonal(dim1=1, dim2=2).amax(1)
    if not (extremes.min() > 1 / FITS_SINGLE and extremes.max() < FITS_SINGLE):
        return None
    lower = LayeredBlocks(op, left, right, largest=False)
    rounding = lower.rounding_of_blocks()
    if rounding > MOST_ROUNDING:
        return None
    lower.slack *= 1 - rounding
    try:
        upper = LayeredBlocks(op, left, right, largest=True)
        top = upper.find_end(largest=True, limits=limits)
        bottom = lower.find_end(largest=False, norm=top.value, limits=limits)
    except (LinAlgError, NotConvergedError):
        return None
    method = "block iteration through the layers"
    return combine_ends(top, bottom, rank=k * r, rounding=lower.rounding(bottom), method=method).rescale(exponent)


class LayeredBlocks(KroneckerBlocks):
    """A Kronecker sum in single precision, in the eigenbasis, whose products with doubles go through the layers."""

    def __init__(
        self, op: LayeredSum, left: Float[Tensor, "L k k"], right: Float[Tensor, "L r r"], *, largest: bool
    ) -> None:
        super().__init__(left, right, largest=largest)
        self.op, self.exact = op, left

    def product(self, x: Float[Tensor, "b k r"]) -> Float[Tensor, "b k r"]:
        """Return the product in the precision of the matrices."""
        return self.op.apply_layers(x, self.exact) if x.dtype == torch.float64 else super().product(x)

    def find_end(self, *, largest: bool, norm: float = 0.0, limits: Limits) -> ExtremePair:
        """Return an end, in single precision until rounding stops it and then in double."""
        inverse, start = self.prepare(largest=largest)
        # The first pass has no patience: what single precision leaves of the error is rounding that no further step
        # removes. The second pass starts from its vectors, with products in double precision, on which alone the
        # accuracy of the eigenvalue rests. The single-precision inverse serves both: a preconditioner may be rounded.
        coarse = limits._replace(tolerance=limits.tolerance / ROUNDING_MARGIN)
        rough = self.iterate(inverse, start, norm=norm, limits=coarse, patience=0)
        exact = self.iterate(inverse, rough.vectors.double(), norm=norm, limits=limits)
        return exact._replace(steps=rough.steps + exact.steps)

    def rounding_of_blocks(self) -> float:
        """Return a bound on the rounding of the blocks and their factors, relative to their first term, which is exact.

        Rounding of the blocks is measured by power iteration, since layers may cancel; rounding of a factor follows the
        diagonal of its block (Demmel).
        """
        exact = torch.diag_embed(self.shares)
        x = random_columns(self.shared, BLOCK_COLUMNS, len(self.shared), self.inputs).double()
        for _ in range(POWER_STEPS):
            x = x / torch.linalg.vector_norm(x, dim=2, keepdim=True) / self.op.roots
            rounded = x.transpose(0, 1).to(self.shared) @ self.shared
            x = (self.op.apply_layers(x, exact) - rounded.transpose(0, 1)) / self.op.roots
        blocks = POWER_MARGIN * torch.linalg.vector_norm(x, dim=2).amax(0)
        factors = (self.inputs**0.5 * SINGLE * self.shared.diagonal(dim1=1, dim2=2) / self.op.roots**2).amax(1)
        return ((blocks + factors) / self.shares[0]).max().item()


def has_narrow_first_layer(terms: Terms, limits: Limits) -> bool:
    """Whether data that are white, up to a share of the tolerance, have more dimensions than the first layer units."""
    op = terms.op
    if not isinstance(op, LayeredSum) or not op.weights:
        return False
    return len(op.weights[0]) < len(op.roots) and _spread(op) <= WHITE_SHARE * limits.tolerance


def restrict_to_first_layer(op: LayeredSum) -> LayeredSum:
    """Return the operator on the range of the first layer, in coordinates of that."""
    triangle = torch.linalg.qr(op.weights[0].mT, mode="r").R
    identity = torch.eye(len(triangle), dtype=op.dtype, device=op.device)
    return LayeredSum(op.left, op.roots.max().expand(len(triangle)), [triangle.mT, *op.weights[1:]], identity)


def add_complement(within: ConditionNumber, op: LayeredSum) -> ConditionNumber:
    """Return both ends of the operator from those on the range of the first layer and those on its complement."""
    mu = torch.linalg.eigvalsh(op.left[0])
    rounding = len(mu) * EPS
    mu = mu[len(mu) - numerical_rank(mu, len(mu)) :]
    values = (mu * op.roots.max() ** 2).tolist()
    largest, smallest = max([within.largest, *values]), min([within.smallest, *values])
    rank = within.rank + len(mu) * (len(op.roots) - len(op.weights[0]))
    residual = max([within.residual, *(rounding * mu[-1:] / mu[:1]).tolist()]) + _spread(op)
    return of_ends(largest, smallest, rank, residual, f"{within.method}, on the range of the first layer").rescale(0)


def _spread(op: LayeredSum) -> float:
    """Spread of the eigenvalues of the second moment; those of the operator change by no more (Ostrowski)."""
    return 1 - (op.roots.min() / op.roots.max()).item() ** 2

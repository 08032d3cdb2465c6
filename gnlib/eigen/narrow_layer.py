r"""Linear networks on white data that have more dimensions than the first layer has units.

With data of second moment :math:`s I` and :math:`W_1 = R^\top Q^\top` of m rows, every factor but the first vanishes
on the complement of the range of Q. There the Gauss-Newton matrix is :math:`s\, C_1 \otimes I`, and each of its
eigenvalues comes as often as dimensions are left; on the range it is that of the network with first weight
:math:`R^\top`, on white data of m dimensions. The lower end would else be so large a cluster that no iteration settles
on it.
"""

import torch

from gnlib.checks import EPS, numerical_rank
from gnlib.eigen.kronecker_sum import Terms
from gnlib.eigen.result import ConditionNumber, Limits
from gnlib.operators import LayeredSum

WHITE_SHARE = 0.1  # of the tolerance, left to data that are not quite white


def applies(terms: Terms, limits: Limits) -> bool:
    """Say whether the data are white, up to a share of the tolerance, and the first layer does not see all of them."""
    op = terms.op
    if not isinstance(op, LayeredSum) or not op.weights:
        return False
    return len(op.weights[0]) < len(op.roots) and _spread(op) <= WHITE_SHARE * limits.tolerance


def within_first_layer(op: LayeredSum) -> LayeredSum:
    """Return the operator on the range of the first layer, in coordinates of that."""
    triangle = torch.linalg.qr(op.weights[0].mT, mode="r").R
    identity = torch.eye(len(triangle), dtype=op.dtype, device=op.device)
    return LayeredSum(op.left, op.roots.max().expand(len(triangle)), [triangle.mT, *op.weights[1:]], identity)


def with_complement(within: ConditionNumber, op: LayeredSum) -> ConditionNumber:
    """Add what the operator is beyond the range of the first layer to both ends of its spectrum on that range."""
    mu = torch.linalg.eigvalsh(op.left[0])
    rounding = len(mu) * EPS
    mu = mu[len(mu) - numerical_rank(mu, len(mu)) :]
    values = (mu * op.roots.max() ** 2).tolist()
    largest, smallest = max([within.largest, *values]), min([within.smallest, *values])
    return ConditionNumber(
        largest=largest,
        smallest=smallest,
        rank=within.rank + len(mu) * (len(op.roots) - len(op.weights[0])),
        gap=smallest / (EPS * largest),
        residual=max([within.residual, *(rounding * mu[-1:] / mu[:1]).tolist()]) + _spread(op),
        method=f"{within.method}, on the range of the first layer",
    )


def _spread(op: LayeredSum) -> float:
    """Spread of the eigenvalues of the second moment; those of the operator change by no more (Ostrowski)."""
    return 1 - (op.roots.min() / op.roots.max()).item() ** 2

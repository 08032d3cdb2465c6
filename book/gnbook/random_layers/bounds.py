r"""Bounds for a residual layer with random weights, x + phi(W x), in all regions (Riedi 2022, section 6.2).

The matrix of interest is :math:`(D_1 W + I) D`: the diagonal D holds the slopes of the layer being trained, :math:`D_1`
those of the residual layer after it. Entries of W are independent, of standard deviation :math:`1 / (r \sqrt{8 n})`.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.random_layers.matrices import Extremes, extremes
from gnbook.shared.extremes import Interval
from gnbook.shared.skips import kaiming_skip_limits


class SkipCondition(NamedTuple):
    r"""Three upper bounds of :math:`\kappa(W + I)`; infinite where they say nothing.

    The first of Riedi 2022, Eq. 114, for :math:`s_1 < 1`, and of Eq. 116, for :math:`\underline\tau > -1`, and ours,
    for :math:`\underline\tau > -2` and sometimes elsewhere, which is never above the other two.
    """

    norm: Tensor | float
    symmetric: Tensor | float
    sharper: Tensor | float


class Guarantee(NamedTuple):
    """A bound, and the largest probability that a random layer may break it."""

    bound: float
    failure: float


def norm_of(r: float) -> float:
    r"""Return the norm of a wide layer, :math:`1 / (\sqrt2\, r)`; the same formula leads from the norm to r."""
    return 1 / (math.sqrt(2) * r)


def riedi_lemma_36(layer: Extremes) -> SkipCondition:
    r"""Return upper bounds of :math:`\kappa(W + I)` for each of a batch (Riedi 2022, Lemma 36 iii and iv, and ours)."""
    top = (layer.largest**2 + layer.tau_largest + 1).clamp_min(0).sqrt()
    least = torch.maximum(layer.tau_smallest / 2, -layer.smallest.clamp_min(1))
    skip = ((1 + least) ** 2 + (layer.smallest**2 - least**2).clamp_min(0)).sqrt()
    bottoms = (1 - layer.largest, (layer.tau_smallest + 1).clamp_min(0).sqrt(), skip)
    return SkipCondition(*((top / bottom).where(bottom > 0, math.inf) for bottom in bottoms))


def riedi_theorem_38(r: float) -> SkipCondition:
    """Return the limits of :func:`riedi_lemma_36` as the layer grows (Riedi 2022, Eq. 122 and 121, and ours)."""
    top = math.sqrt(r**2 + r + 1 / 2)
    bottoms = (r - math.sqrt(1 / 2), math.sqrt(max(r**2 - r, 0)), r - 1 / 2)
    return SkipCondition(*(top / bottom if bottom > 0 else math.inf for bottom in bottoms))


def skip_condition_limit(r: float) -> float:
    r"""Return the limit of :math:`\kappa(W + I)` itself; W is a Kaiming layer over :math:`r \sqrt 8`."""
    smallest, largest = kaiming_skip_limits(math.sqrt(8) * r)
    return largest / smallest if smallest > 0 else math.inf


def riedi_theorem_39(n: int, trained: int, residual: int, r: float, theta: float) -> Guarantee:
    r"""Return the bound of Riedi 2022, Eq. 128, on the condition number of a residual layer with ReLUs.

    It may fail with a probability of :math:`2 e^{-\theta^2/2}`, to which the paper adds :math:`P[s_1(W) \ge 1]`;
    Gaussian entries, and activities that do not depend on W. :func:`all_regions` says more, with fewer assumptions. Of
    n units so many are inactive, in the `trained` layer, not all of them, and in the `residual` layer, at least one in
    all; :math:`4 < \theta \le 2 \sqrt n`, and r is above what the denominator subtracts.
    """
    least = 2 + 2 * (trained + residual - trained * residual / n) + theta
    return Guarantee(2 * (1 + 1 / r) / (1 - least / r), 2 * math.exp(-(theta**2) / 2))


def all_regions(weight: Float[Tensor, "n n"], slope: float = 0.0) -> Interval:
    """Return bounds on the singular values of :math:`(D_1 W + I) D` that hold in all regions at once.

    The diagonal of :math:`D_1` has any entries between `slope` and 1, that of D has the entries `slope` and 1 (claim
    "All regions"). For the ReLU, slope 0, the zeros that D brings are not counted. The lower bound is zero where
    nothing follows.
    """
    layer = extremes(weight)
    return _all_regions(layer.largest.item(), layer.tau_smallest.item(), layer.tau_largest.item(), slope)


def all_regions_of_branch(inner: Float[Tensor, "m n"], outer: Float[Tensor, "n m"], slope: float = 0.0) -> Interval:
    """Return bounds on the singular values of :math:`(W_2 D_1 W_1 + I) D` that hold in all regions at once.

    The branch of a residual block has two layers with an activation between them, else it is as :func:`all_regions`.
    """
    centre, half = (1 + slope) / 2, (1 - slope) / 2
    norms = [torch.linalg.matrix_norm(weight, 2).item() for weight in (inner, outer)]
    identity = torch.eye(len(outer), dtype=outer.dtype, device=outer.device)
    singular = torch.linalg.svdvals(identity + centre * outer @ inner)
    radius = half * norms[0] * norms[1]
    return Interval(max(singular[-1].item() - radius, 0.0) * (abs(slope) or 1.0), singular[0].item() + radius)


def all_regions_limit(r: float, slope: float = 0.0) -> float:
    """Return the bound on kappa that :func:`all_regions` tends to as a random layer grows."""
    lower, upper = _all_regions(1 / (math.sqrt(2) * r), -1 / r, 1 / r, slope)
    return upper / lower if lower > 0 else math.inf


def _all_regions(norm: float, tau_smallest: float, tau_largest: float, slope: float) -> Interval:
    centre, half = (1 + slope) / 2, (1 - slope) / 2  # of the slopes
    rest, at, lower = 1 + centre * tau_smallest, norm, 1 - norm
    if rest > 0:
        if slope > 0:  # the minimum may be inside
            at = min(norm, half * math.sqrt(rest / slope) / centre)
        lower = max(lower, math.sqrt(rest + (centre * at) ** 2) - half * at)
    upper = math.sqrt(max(1 + centre * tau_largest + (centre * norm) ** 2, 0)) + half * norm
    return Interval(max(lower, 0.0) * (abs(slope) or 1.0), upper)

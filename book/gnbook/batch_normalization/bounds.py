r"""Upper bounds for one batch-normalised hidden layer, in training mode (Zhao 2024, section 7, leaves them open).

The one difficulty is the smallest eigenvalue of :math:`\sum_u a_u W_u W_u^\top \otimes N_u R^2 N_u`, in which both
factors of each term are singular (claim "One unit without its own direction"): what is taken away in the direction of
the unit itself, a share t of :math:`I_k \otimes \gamma_u^2 e_u e_u^\top` from the output weights can pay for. Symbols
are those of :func:`gnbook.batch_normalization.gauss_newton.batch_norm_gauss_newton`.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import scipy
import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.batch_normalization.gauss_newton import NormalizedUnits, normalized_units
from gnlib.eigen.dense import graded_smallest
from gnlib.linear.moment import SecondMoment


def batch_norm_bound(
    weights: Sequence[Tensor], x: Float[Tensor, "n d"], *, eps: float = 0.0, scale: Float[Tensor, " m"] | None = None
) -> float:
    """Return the bound of claim "Lemma 1 for BatchNorm" at its best share t, infinite where its denominator is zero."""
    units = normalized_units(weights, x, eps=eps, scale=scale)
    v = units.scale[:, None] * units.hidden / units.eigenvalues.sqrt()  # D^1/2 V on the range
    values = torch.linalg.svdvals(v).square()
    first, last = values[0], values[-1] if len(v) >= v.shape[1] else 0.0
    largest = _ends(units.output, _by_weights(units))[1] + first
    smallest = _best_share(lambda t: (_ends(units.output, _kept(units, t, False))[0] + (1 - t) * last).item())
    data = (units.eigenvalues[0] / units.eigenvalues[-1]).item()
    return data * largest.item() / smallest if smallest > 0 else math.inf


def sharp_batch_norm(weights: Sequence[Tensor], x: Float[Tensor, "n d"], *, affine: bool = False, **how: Any) -> float:
    r"""Return the bound of claim "Sharper bound for BatchNorm" at its best share t, infinite where it has none.

    It keeps the data whole and is never above :func:`batch_norm_bound`. Where scale and shift are parameters
    (`affine`), :math:`W_u W_u^\top \otimes e_u e_u^\top` pays its part, and the constant has a coordinate of its own.
    """
    units = normalized_units(weights, x, **how)
    w, s, r = units.output, units.eigenvalues, len(units.eigenvalues)
    features = units.scale[:, None] * units.hidden
    if affine or units.shift.any():
        features = torch.cat([features, units.shift[:, None]], 1)
    from_outputs = features.mT @ features
    squares = units.hidden.square().sum(1)
    most = _by_weights(units) * s[0]
    if affine:
        most = torch.maximum(most, most * (1 - squares) ** 2 + squares)
    ones = torch.ones_like(units.variance)
    constant = _ends(w, ones) if affine else (s.new_zeros(()),) * 2
    largest = torch.maximum(_ends(w, most)[1], constant[1]) + torch.linalg.eigvalsh(from_outputs)[-1]

    def smallest(share: float) -> float:
        least = from_outputs.clone()
        least[:r, :r] *= 1 - share
        by_weights = _ends(w, _kept(units, share, affine))[0]
        least += torch.cat([by_weights * s, constant[0].expand(len(least) - r)]).diag()
        found = graded_smallest(least)
        return 0.0 if found is None else found[0]

    lower = _best_share(smallest)
    return largest.item() / lower if lower > 0 else math.inf


def batch_norm_limit(second_moment: SecondMoment, *, eps: float = 0.0, variance: float | None = None) -> float:
    """Return the condition number that a layer tends to as it grows wide (claim "BatchNorm, infinite width").

    The second moment is that of the centred data; the variance of V is 1/d if left out.
    """
    s = second_moment.eigenvalues
    t = torch.linspace(-60, 120, 4001, dtype=s.dtype, device=s.device).exp() / s[0]  # beyond, it is below 1e-24
    offset = eps / (1 / len(second_moment.basis) if variance is None else variance)
    weight = (-torch.log1p(2 * s * t[:, None]).sum(1) / 2 - t * offset).exp() * t
    ends = [(weight * s[i] / (1 + 2 * s[i] * t)).sum() for i in (0, -1)]
    return (ends[0] / ends[1]).item()


def _by_weights(units: NormalizedUnits) -> Float[Tensor, " m"]:
    """The diagonal of D."""
    return units.scale**2 / units.variance


def _kept(units: NormalizedUnits, share: float, affine: bool) -> Float[Tensor, " m"]:
    r"""The diagonal of :math:`D_t`: what is left of D when the output weights give up this share."""
    norms, squares = units.output.square().sum(0), units.scale.square()
    due = squares * norms * (units.hidden.square() @ units.eigenvalues) / units.variance
    paid = share * squares + (norms if affine else 0)
    return _by_weights(units) * torch.where(due > 0, paid / (paid + due), 1.0)


def _ends(w: Float[Tensor, "k m"], diagonal: Float[Tensor, " m"]) -> tuple[Tensor, Tensor]:
    """Extreme eigenvalues of `w diag(diagonal) w^T`; the smallest is zero where it is lost in rounding."""
    values = torch.linalg.svdvals(w * diagonal.sqrt()).square()
    return values[-1] if len(w) <= w.shape[1] else torch.zeros_like(values[0]), values[0]


def _best_share(smallest: Callable[[float], float]) -> float:
    """The largest value of a concave function on [0, 1], nearly: in wide layers the best share is small."""
    found = scipy.optimize.minimize_scalar(
        lambda y: -smallest(math.exp(y)), bounds=(-18, 0), method="bounded", options={"xatol": 1e-2}
    )
    return max(-found.fun, smallest(0.0), smallest(1.0))

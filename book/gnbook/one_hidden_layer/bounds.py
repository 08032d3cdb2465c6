"""Lemma 1 for Gaussian weights (Zhao 2024, appendix G), and a bound from below."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.shared.extremes import Interval
from gnlib import SecondMoment


def zhao_lemma_6(rows: float, columns: int, t: float) -> Interval:
    r"""Return :math:`\sqrt{N} \mp (\sqrt{n} + t)`, bounds on the singular values of a standard normal N x n matrix.

    Both hold at once with probability at least :math:`1 - 2 e^{-t^2/2}` (Zhao 2024, Lemma 6; Vershynin 2010,
    Cor. 5.35).
    """
    return Interval(math.sqrt(rows) - math.sqrt(columns) - t, math.sqrt(rows) + math.sqrt(columns) + t)


def zhao_lemma_7(
    d: int, m: float, k: int, t: float, *, variance_v: float, variance_w: float, data: float = 1.0
) -> float:
    """Return the bound of Zhao 2024, Lemma 7, for `V` (m x d) and `W` (k x m) of given variances.

    It is as repaired in the claims, with zero in place of negative differences, and holds with probability at least
    :math:`1 - 4 e^{-t^2/2}`. Kaiming normal of gain 1 has the variances 1/d and 1/m; `data` is the condition number of
    the second moment.
    """
    w, v = zhao_lemma_6(m, k, t), zhao_lemma_6(m, d, t)
    smallest = variance_w * max(w.lower, 0) ** 2 + variance_v * max(v.lower, 0) ** 2
    largest = variance_w * w.upper**2 + variance_v * v.upper**2
    return data * largest / smallest if smallest > 0 else math.inf


def asymptotic_bound(d: int, m: float, k: int, *, variance_v: float, variance_w: float, data: float = 1.0) -> float:
    """Return the limit of Lemma 1 as d, m and k < m grow in proportion (Zhao 2024, Eq. 22): Lemma 7 without t."""
    return zhao_lemma_7(d, m, k, 0.0, variance_v=variance_v, variance_w=variance_w, data=data)


def from_below(weights: tuple[Float[Tensor, "m d"], Float[Tensor, "k m"]], moment: SecondMoment) -> float:
    """Return a lower bound on the condition number of one hidden layer (claim "Lemma 1, from below").

    It takes the first and the last eigenvector of the second moment on its range, for a Gauss-Newton matrix that is
    regular there.
    """
    v, w = weights
    outputs, data = torch.linalg.eigvalsh(w @ w.mT), moment.eigenvalues
    reached = (v @ moment.basis[:, [0, -1]]).square().sum(0)
    return (data[0] / data[-1] * (outputs[-1] + reached[0]) / (outputs[0] + reached[1])).item()

r"""Bounds on singular values under a skip and an activation (Riedi 2022, sections 4, 5 and 6.1), and sharper ones.

:math:`M(\rho) = M_o + \rho I` is a square layer, or a product of p of them, with a skip of weight :math:`\rho`, and D
the diagonal matrix of the slopes of an activation: 1 where a unit is active and :math:`\eta` where it is not. Condition
numbers are those of the singular values that are not zero; bounds are infinite where their assumption does not hold.
All weights are at most `entry` in modulus, below 1/n; slopes are from -1 to 1, and some of the n units are inactive.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.shared.extremes import Interval, ratio
from gnlib.checks import as_float64
from gnlib.linear.network import as_skip


def shifted_singular_values(
    matrix: Float[Tensor, "n n"], rho: float
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    r"""Return lower and upper bounds of every singular value of :math:`M_o + \rho I`, in descending order.

    They are those of Riedi 2022, Theorem 16 and Eq. 73, for a negative skip with the two :math:`\tau` swapped, and zero
    where a radicand is negative. :func:`skip_bounds` has a sharper one for the smallest.
    """
    squares, tau = _spectra(matrix)
    rho = as_skip(rho)
    least, most = sorted((rho * tau[0].item(), rho * tau[-1].item()))
    lower, upper = ((squares + shift + rho**2).clamp_min(0).sqrt() for shift in (least, most))
    return lower, upper


def riedi_theorem_22(matrix: Float[Tensor, "n n"]) -> tuple[float, float, float, float]:
    """Return the bounds of Riedi 2022, Theorem 22, for M + I: Eq. 76 and 77, a simpler one after each."""
    squares, tau = _spectra(matrix)
    largest, smallest, least, most = squares[0].item() ** 0.5, squares[-1].item(), tau[0].item(), tau[-1].item()
    top = math.sqrt(max(1 + most + largest**2, 0.0))
    second = math.sqrt(1 + least + smallest) if least > -1 else 0.0
    simpler = ratio(1 + largest, math.sqrt(max(1 + least, 0.0)))
    return ratio(top, 1 - largest), ratio(1 + largest, 1 - largest), ratio(top, second), simpler


def riedi_lemma_29(entry: float, n: int) -> Interval:
    """Return bounds of the singular values of M + I (Riedi 2022, Lemma 29; with an absolute value too, Theorem 30)."""
    return Interval(1 - entry * n, 1 + entry * n)


def riedi_theorem_31(entry: float, n: int, inactive: int) -> tuple[float, float, float]:
    """Return the bounds of Riedi 2022, Theorem 31 (Eq. 89 to 91), on the condition number of (M + I) D for the ReLU."""
    top = 1 + entry * n
    whole, units = (math.sqrt(max(1 - 2 * entry * n * (1 + k), 0.0)) for k in (n, 2 * inactive))
    return ratio(top, whole), ratio(top, 1 - entry * n - math.sqrt(inactive / n)), ratio(top, units)


def riedi_theorem_32(entry: float, n: int, inactive: int, slope: float) -> tuple[float, float]:
    r"""Return the bounds of Riedi 2022, Theorem 32 (Eq. 100 and 101), for leaky ReLUs of a slope from 0 to 1.

    The first is stated for :math:`n \ge 5`, which it does not need.
    """
    top, low = 1 + entry * n, 1 - entry * n
    square = low**2 - 4 * (1 - slope) * math.sqrt(inactive)
    linear = low - (1 - slope) * inactive * (3 * entry + 1)
    return ratio(top, math.sqrt(max(square, 0.0))), ratio(top, linear)


def hard_bound(entry: float, n: int, inactive: int = 0, slope: float = -1.0, depth: int = 1) -> float:
    r"""Return an upper bound on the condition number of :math:`M(1) D` from the largest weight, for any slope.

    :math:`M(1) = I + D_p W_p \cdots D_1 W_1` with p the `depth` (claim "Hard bound, any slope"). It is never above the
    bounds of Riedi 2022, Lemma 29 and Theorems 30 to 32, and has no other assumption than small weights.
    """
    kept = n if slope else n - inactive
    if kept == 1:
        return 1.0
    r = entry * math.sqrt(n * kept) * (entry * n) ** (depth - 1)
    root = math.sqrt(2 - r**2)
    spread = 1 / abs(slope) if slope and 0 < inactive < n else 1.0
    return spread * (root + r) / (root - r)


def _spectra(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the squared singular values, descending, and the eigenvalues of M + M^T, ascending."""
    m = as_float64(matrix, "matrix")
    return torch.linalg.svdvals(m) ** 2, torch.linalg.eigvalsh(m + m.mT)

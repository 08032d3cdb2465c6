r"""Bounds on singular values under a skip and an activation (Riedi 2022, sections 4, 5 and 6.1), and sharper ones.

:math:`M(\rho) = M_o + \rho I` is a square layer, or a product of p of them, with a skip of weight :math:`\rho`, and D
the diagonal matrix of the slopes of an activation: 1 where a unit is active and :math:`\eta` where it is not. Condition
numbers are those of the singular values that are not zero.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.shared.extremes import Interval, ratio
from gnlib.checks import as_float64
from gnlib.linear.network import as_skip


class Theorem22(NamedTuple):
    """The four bounds of Riedi 2022, Theorem 22; infinite where their assumption does not hold."""

    eq_76: float
    eq_76_simple: float
    eq_77: float
    eq_77_simple: float


class Theorem31(NamedTuple):
    """The three bounds of Riedi 2022, Theorem 31; infinite where their assumption does not hold."""

    eq_89: float
    eq_90: float
    eq_91: float


class Theorem32(NamedTuple):
    """The two bounds of Riedi 2022, Theorem 32; infinite where their assumption does not hold."""

    eq_100: float
    eq_101: float


def shifted_singular_values(
    matrix: Float[Tensor, "n n"], rho: float
) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    r"""Return lower and upper bounds of every singular value of :math:`M_o + \rho I`, in descending order.

    With the extreme eigenvalues :math:`\underline\tau` and :math:`\overline\tau` of :math:`M_o + M_o^\top`,

    .. math:: s_i(0)^2 + \rho\, \underline\tau + \rho^2 \le s_i(\rho)^2 \le s_i(0)^2 + \rho\, \overline\tau + \rho^2

    for :math:`\rho \ge 0` (Riedi 2022, Theorem 16 and Eq. 73); for :math:`\rho < 0` the two :math:`\tau` change places.
    The lower bound is zero where the left side is negative. :func:`skip_bounds` has a sharper one for the smallest.
    """
    squares, tau = _spectra(matrix)
    rho = as_skip(rho)
    least, most = sorted((rho * tau[0].item(), rho * tau[-1].item()))
    lower, upper = ((squares + shift + rho**2).clamp_min(0).sqrt() for shift in (least, most))
    return lower, upper


def riedi_theorem_22(matrix: Float[Tensor, "n n"]) -> Theorem22:
    """Return the four bounds of Riedi 2022, Theorem 22, on the condition number of :math:`M_o + I`."""
    squares, tau = _spectra(matrix)
    largest, smallest, least, most = squares[0].item() ** 0.5, squares[-1].item(), tau[0].item(), tau[-1].item()
    top = math.sqrt(max(1 + most + largest**2, 0.0))
    square_root = math.sqrt(max(1 + least, 0.0))
    second = math.sqrt(1 + least + smallest) if least > -1 else 0.0
    return Theorem22(
        eq_76=ratio(top, 1 - largest),
        eq_76_simple=ratio(1 + largest, 1 - largest),
        eq_77=ratio(top, second),
        eq_77_simple=ratio(1 + largest, square_root),
    )


def riedi_lemma_29(entry: float, n: int) -> Interval:
    r"""Return bounds of the singular values of :math:`M(1)` if all weights are at most :math:`c < 1 / n` in modulus.

    .. math:: 1 - c n \le s_n(M(1)) \le s_1(M(1)) \le 1 + c n

    (Riedi 2022, Lemma 29). Their quotient bounds the condition number (Eq. 87), and with an absolute value as well
    (Theorem 30).
    """
    _check(entry, n)
    return Interval(1 - entry * n, 1 + entry * n)


def riedi_theorem_31(entry: float, n: int, inactive: int) -> Theorem31:
    """Return the bounds of Riedi 2022, Theorem 31, on the condition number of :math:`M(1) D` for the ReLU.

    Of the trained layer so many units are inactive, of slope zero; less than n, or nothing is left. :func:`hard_bound`
    is below all three and needs no more than weights below 1/n.
    """
    _check(entry, n, inactive)
    top = 1 + entry * n
    whole, units = (math.sqrt(max(1 - 2 * entry * n * (1 + k), 0.0)) for k in (n, 2 * inactive))
    return Theorem31(ratio(top, whole), ratio(top, 1 - entry * n - math.sqrt(inactive / n)), ratio(top, units))


def riedi_theorem_32(entry: float, n: int, inactive: int, slope: float) -> Theorem32:
    r"""Return the bounds of Riedi 2022, Theorem 32, on the condition number of :math:`M(1) D` for the leaky ReLU.

    The first is stated for :math:`n \ge 5`, which it does not need. Of the trained layer so many units are inactive, of
    this slope, from 0 to 1. :func:`hard_bound` is below both and needs no more than weights below 1/n.
    """
    if slope < 0:
        raise ValueError(f"slope is {slope}; Theorem 32 is about slopes from 0 to 1 (hard_bound takes -1 to 1).")
    _check(entry, n, inactive, slope)
    top, low = 1 + entry * n, 1 - entry * n
    square = low**2 - 4 * (1 - slope) * math.sqrt(inactive)
    linear = low - (1 - slope) * inactive * (3 * entry + 1)
    return Theorem32(ratio(top, math.sqrt(max(square, 0.0))), ratio(top, linear))


def hard_bound(entry: float, n: int, inactive: int = 0, slope: float = -1.0, depth: int = 1) -> float:
    r"""Return an upper bound on the condition number of :math:`M(1) D` from the largest weight c, for any slope.

    :math:`M(1) = I + D_p W_p \cdots D_1 W_1` with p the `depth`, all weights at most :math:`c < 1/n` and all slopes at
    most 1 in modulus (claim "Hard bound, any slope"): never above the bounds of Riedi 2022, Lemma 29 and Theorems 30 to
    32, with no other assumption.
    """
    _check(entry, n, inactive, slope)
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


def _check(entry: float, n: int, inactive: int = 0, slope: float = 0.0) -> None:
    if not (n >= 1 and 0 <= entry * n < 1 and -1 <= slope <= 1 and 0 <= inactive < n + (slope != 0)):
        raise ValueError(
            f"entry is {entry}, slope {slope}, inactive {inactive}; the bounds are about weights below 1/n in modulus, "
            f"slopes from -1 (absolute value) to 1 (linear), and a part of n = {n} units that leaves something."
        )

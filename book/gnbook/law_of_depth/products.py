r"""Products of random layers: the ends of their spectra, and from these the bounds of Lemma 2 (Zhao 2024).

A product of N Gaussian layers of width m, whose entries have variance 1 / m, acts on n dimensions. By the
S-transform, :math:`z = (1 + \frac 1w) (1 + c w)^N` with :math:`c = n / m`: the recursion of `gnlib.laws.recursion`
without its shifts. Both ends are where z does not change with w, and there :math:`N c w^2 + (N - 1) c w = 1`.

R. R. Mueller (2002), IEEE Trans. Inform. Theory 48, has the spectrum of products.
"""

import math

import torch
from scipy.special import exp1

from gnbook.shared.extremes import Interval
from gnlib.laws.network import TRACY_WIDOM
from gnlib.linear.bounds import Lemma2, Lemma2Terms


def product_ends(layers: int, size: int, width: int, *, shift: bool = False) -> Interval:
    r"""Return the ends of the spectrum of :math:`B^\top B` for a product B of Gaussian layers of one width.

    B acts on n dimensions (`size`); the smallest eigenvalue is zero if n is not below the width. With `shift` an end is
    the mean eigenvalue there of a matrix of this size, which the law of Tracy and Widom has: :math:`1.21\, (z^2 z'' /
    2)^{1/3}` away from the limit, with the second derivative by :math:`\Omega = n w`, applied to the logarithm.
    """
    if layers == 0:
        return Interval(1.0, 1.0)
    c, ends = size / width, []
    root = math.sqrt(((layers - 1) * c) ** 2 + 4 * layers * c)
    for side in (-1, 1):
        if side < 0 and size >= width:
            ends.append(0.0)
            continue
        w = (side * root - (layers - 1) * c) / (2 * layers * c)
        z = (1 + 1 / w) * (1 + c * w) ** layers
        curvature = 1 / w**2 - 1 / (1 + w) ** 2 - layers * (c / (1 + c * w)) ** 2  # of log z, by w
        behind = TRACY_WIDOM * (abs(curvature) / (2 * size**2)) ** (1 / 3) if shift else 0.0  # relative to z
        ends.append(z * math.exp(side * behind))
    return Interval(*ends)


def lemma_2_terms(
    layers: int, width: int, rank: int, inputs: int, outputs: int = 0, *, shift: bool = False
) -> Lemma2Terms:
    """Return the extreme eigenvalues that Lemma 2 combines, for white data and wide random layers.

    The first layer has `inputs` columns, the data the rank `rank`, the last layer `outputs` rows; none stands for far
    fewer than the width. `shift` counts the sizes of the matrices, see `product_ends`.
    """
    below = [product_ends(j, rank, width, shift=shift) for j in range(layers)]
    above = [product_ends(j, outputs, width, shift=shift) if outputs else (1, 1) for j in reversed(range(layers))]
    first = torch.tensor([1.0] + [width / inputs] * (layers - 1), dtype=torch.float64)  # variance 1 / inputs
    (below_smallest, below_largest), (above_smallest, above_largest) = (
        torch.tensor(ends, dtype=torch.float64).T for ends in (below, above)
    )
    return Lemma2Terms(above_largest, above_smallest, first * below_largest, first * below_smallest, 1.0)


def lemma_2(*of_terms: int, shift: bool = False) -> Lemma2:
    """Return both bounds of Lemma 2 for white data and wide random layers; the parameters are those of the terms."""
    terms = lemma_2_terms(*of_terms, shift=shift)
    largest = terms.above_largest * terms.below_largest
    return Lemma2((largest.sum() / terms.alpha.sum()).item(), (largest / terms.alpha).max().item())


def lemma_2_of_many(t: float) -> Lemma2:
    r"""Return both bounds of Lemma 2 for infinitely many layers, few outputs and white data, at :math:`t = L d / m`.

    With both roots :math:`x_- < 0 < x_+` of :math:`x^2 = t (1 - x)` the first is :math:`H(x_+) / H(x_-)`,

    .. math:: H(x) = \int_0^x \frac{e^y (2 y - y^2)}{(1 - y)^3}\, dy
        = \frac{x e^x}{2 (1 - x)^2} - \frac e2 \bigl(E_1(1 - x) - E_1(1)\bigr),

    and the second that of the last layer, :math:`e^{x_+ - x_-} (1 - x_-) / (1 - x_+)`. For large t they are
    :math:`t^2 / E_1(1) = 4.558\, t^2` and :math:`t^2 e^{t + 2}`.
    """
    root = math.sqrt(t * (t + 4))
    upper, lower = 2 * t / (t + root), -(t + root) / 2  # the first is (root - t) / 2, without cancellation

    def total(x: float) -> float:
        rest = t / x**2  # 1 / (1 - x)
        return x * math.exp(x) * rest**2 / 2 - math.e / 2 * (exp1(1 / rest) - exp1(1))

    second = math.exp(upper - lower) * (lower / upper) ** 2 if t < 600 else math.inf  # it leaves double precision
    return Lemma2(float(total(upper) / total(lower)), second)

r"""Square matrices with independent entries: their extreme values, many at a time, and the limits of these.

For an n x n matrix K with independent entries of mean zero and variance one, the largest eigenvalue of
:math:`K + K^\top` is about :math:`\sqrt{8 n}`, the largest singular value of K about :math:`2 \sqrt n`, and both
fluctuate by the law of Tracy and Widom (1996) for real matrices (Riedi 2022, Theorems 33 and 35).
"""

import math
from typing import NamedTuple

import numpy as np
import scipy
import torch
from jaxtyping import Float
from torch import Tensor

LAWS = ("gaussian", "uniform")
END = 12.0  # beyond it Ai is below 1e-13, and so is 1 - F_1


class Extremes(NamedTuple):
    r"""Extreme singular values of square matrices M, and eigenvalues of :math:`M + M^\top` (Riedi, Definition 15)."""

    largest: Tensor
    smallest: Tensor
    tau_largest: Tensor
    tau_smallest: Tensor


def draw(
    n: int, count: int, law: str = "gaussian", *, generator: torch.Generator, device: str | torch.device = "cpu"
) -> Float[Tensor, "count n n"]:
    """Draw square matrices whose entries are independent, of mean zero and variance one, "gaussian" or "uniform"."""
    options = {"generator": generator, "dtype": torch.float64, "device": device}
    if law == "gaussian":
        return torch.randn(count, n, n, **options)
    return math.sqrt(3) * (2 * torch.rand(count, n, n, **options) - 1)


def extremes(matrices: Float[Tensor, "*batch n n"]) -> Extremes:
    """Return the extreme singular values of square matrices, and the extreme eigenvalues of M + M^T."""
    singular = torch.linalg.svdvals(matrices)
    symmetric = torch.linalg.eigvalsh(matrices + matrices.mT)
    return Extremes(singular[..., 0], singular[..., -1], symmetric[..., -1], symmetric[..., 0])


def symmetric_scaling(n: int) -> tuple[float, float]:
    r"""Return the centre and the scale of the largest eigenvalue of :math:`K + K^\top`."""
    return math.sqrt(8 * n), math.sqrt(2) * n ** (-1 / 6)


def singular_scaling(n: int) -> tuple[float, float]:
    """Return the centre and the scale of the square of the largest singular value of K (Riedi 2022, Eq. 110)."""
    roots = math.sqrt(n - 1), math.sqrt(n)
    return sum(roots) ** 2, sum(roots) * sum(1 / root for root in roots) ** (1 / 3)


def tracy_widom_cdf(s: Float[np.ndarray, "..."] | float) -> Float[np.ndarray, "..."] | float:
    r"""Return the distribution function of the Tracy-Widom law for real matrices (beta = 1).

    .. math:: F_1(s) = \det(1 - B_s), \qquad B_s(x, y) = \operatorname{Ai}(x + y + s) \text{ on } (0, \infty)

    (Ferrari and Spohn 2005), discretised at the nodes of a Gaussian quadrature, which converges exponentially
    (Bornemann 2010). The absolute error is below 1e-13.
    """
    return np.linalg.det(_one_minus_kernel(s)[0])


def tracy_widom_pdf(s: Float[np.ndarray, "..."] | float) -> Float[np.ndarray, "..."] | float:
    r"""Return the density :math:`F_1'(s) = -F_1(s) \operatorname{tr} (1 - B_s)^{-1} \partial_s B_s`."""
    matrix, derivative = _one_minus_kernel(s)
    trace = np.trace(np.linalg.solve(matrix, derivative), axis1=-2, axis2=-1)
    return -np.linalg.det(matrix) * trace


def _one_minus_kernel(s: Float[np.ndarray, "..."] | float) -> tuple[np.ndarray, np.ndarray]:
    """Return 1 - B_s and the derivative of B_s by s, with the roots of the quadrature weights on both sides."""
    s = np.clip(np.asarray(s, dtype=np.float64), -10, END)  # beyond, the law has less mass than the precision resolves
    nodes, weights = np.polynomial.legendre.leggauss(32)
    length = (END - s)[..., None]
    nodes, roots = length * (nodes + 1) / 2, np.sqrt(length * weights / 2)
    ai, slope, _, _ = scipy.special.airy(nodes[..., :, None] + nodes[..., None, :] + s[..., None, None])
    frame = roots[..., :, None] * roots[..., None, :]
    return np.eye(len(weights)) - frame * ai, frame * slope

r"""Lemma 1 for Gaussian weights (Zhao 2024, appendix G), a bound from below, and what the public code of Zhao computes.

There the second moment stands whole to the right of each term, in place of its root on either side. That changes no
eigenvalue. But a routine for symmetric matrices reads one triangle, and the matrix is symmetric for white data only.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.shared.extremes import Interval
from gnlib import SecondMoment
from gnlib.checks import as_symmetric
from gnlib.linear.gauss_newton import partial_products


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


def one_sided(weights: Sequence[Tensor], second_moment: Float[Tensor, "d d"]) -> Float[Tensor, "kd kd"]:
    r"""Return :math:`\sum_\ell A_\ell A_\ell^\top \otimes B_\ell^\top B_\ell \Sigma`, of the eigenvalues of Eq. 5."""
    second_moment = as_symmetric(second_moment, "second_moment")
    return sum(torch.kron(a @ a.mT, b.mT @ b @ second_moment) for a, b in partial_products(weights))


def two_layers_by_one_triangle(weights: Sequence[Tensor], second_moment: Float[Tensor, "d d"]) -> Float[Tensor, " kd"]:
    r"""Return :func:`read_by_one_triangle` of :func:`one_sided` for one hidden layer, block by block.

    :math:`W W^\top \otimes \Sigma` is symmetric, and the other term has the same block for each output, so that the
    eigenvectors of :math:`W W^\top` split what is read into k matrices of d rows.
    """
    second_moment = as_symmetric(second_moment, "second_moment")
    (above, _), (_, below) = partial_products(weights)
    block = below.mT @ below @ second_moment
    outputs = torch.linalg.eigvalsh(above @ above.mT)
    read = torch.cat([read_by_one_triangle(block + value * second_moment) for value in outputs])
    return read.sort(descending=True).values


def read_by_one_triangle(matrix: Float[Tensor, "kd kd"]) -> Float[Tensor, " kd"]:
    """Return the sizes, descending, of the eigenvalues that the lower triangle and its mirror image have."""
    return torch.linalg.eigvalsh(matrix, UPLO="L").abs().sort(descending=True).values

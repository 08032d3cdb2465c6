"""Eigenvalues of a sum of two symmetric matrices, from those of the terms (Zhao 2024, appendix A)."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import as_float64


class Interval(NamedTuple):
    """A lower and an upper bound of the same quantity."""

    lower: float
    upper: float


def weyl(a: Float[Tensor, " n"], b: Float[Tensor, " n"]) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    r"""Return the best lower and upper bounds that Weyl's inequalities give for each eigenvalue of a sum.

    With eigenvalues in descending order (Zhao 2024, Lemma 5; Weyl 1912),
    :math:`\lambda_{i+j-1}(A + B) \le \lambda_i(A) + \lambda_j(B)` and
    :math:`\lambda_{i+j-n}(A + B) \ge \lambda_i(A) + \lambda_j(B)`.

    Parameters
    ----------
    a, b : eigenvalues of the two terms, in any order

    Returns
    -------
    Lower and upper bounds of the eigenvalues of the sum, in descending order.
    """
    a, b = (as_float64(v, name).sort(descending=True).values for v, name in ((a, "a"), (b, "b")))
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"a and b have shapes {tuple(a.shape)} and {tuple(b.shape)}; two lists of n eigenvalues were expected.")
    n = len(a)
    upper = torch.stack([(a[: q + 1] + b[: q + 1].flip(0)).min() for q in range(n)])
    lower = torch.stack([(a[q:] + b[q:].flip(0)).max() for q in range(n)])
    return lower, upper


def sum_bounds(a: Float[Tensor, " n"], b: Float[Tensor, " n"]) -> Interval:
    r"""Return the bounds of Zhao 2024, Eq. 12, on the condition number of the sum of two positive semi-definite matrices.

    .. math::

        \frac{\max_j \lambda_{n-j}(A) + \lambda_{1+j}(B)}{\min_j \lambda_{n-j}(A) + \lambda_{1+j}(B)}
        \le \kappa(A + B) \le
        \frac{\lambda_1(A) + \lambda_1(B)}{\lambda_n(A) + \lambda_n(B)}

    The paper states them for symmetric matrices, with absolute values; they fail there (see the claims), so negative
    eigenvalues are an error here. Where both terms are singular the upper bound is infinite; the lower bound is never
    larger than the condition number of a regular sum.
    """
    lower, upper = weyl(a, b)
    if min(a.min(), b.min()) < 0:
        raise ValueError("a or b has a negative eigenvalue; the bounds hold for positive semi-definite matrices only.")
    return Interval(_ratio(lower[0], upper[-1]), _ratio(upper[0], lower[-1]))


def _ratio(largest: Tensor, smallest: Tensor) -> float:
    return (largest / smallest).item() if smallest > 0 else float("inf")

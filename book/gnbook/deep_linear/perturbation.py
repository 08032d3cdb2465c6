"""Eigenvalues of a sum of two symmetric matrices, from those of the terms (Zhao 2024, appendix A)."""

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.shared.extremes import Interval


def weyl(a: Float[Tensor, " n"], b: Float[Tensor, " n"]) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    r"""Return the best lower and upper bounds that Weyl's inequalities give for each eigenvalue of a sum.

    With eigenvalues in descending order (Zhao 2024, Lemma 5; Weyl 1912), :math:`\lambda_{i+j-1}(A + B) \le \lambda_i(A)
    + \lambda_j(B)` and :math:`\lambda_{i+j-n}(A + B) \ge \lambda_i(A) + \lambda_j(B)`. Both are in descending order,
    whatever the order of a and b.
    """
    a, b = (v.sort(descending=True).values for v in (a, b))
    n = len(a)
    upper = torch.stack([(a[: q + 1] + b[: q + 1].flip(0)).min() for q in range(n)])
    lower = torch.stack([(a[q:] + b[q:].flip(0)).max() for q in range(n)])
    return lower, upper


def sum_bounds(a: Float[Tensor, " n"], b: Float[Tensor, " n"]) -> Interval:
    r"""Return the bounds of Zhao 2024, Eq. 12, on the condition number of a positive definite sum of two matrices.

    The upper bound is infinite unless :math:`\lambda_n(A) + \lambda_n(B) > 0`. The paper states both with absolute
    values for all symmetric matrices, where they fail (see the claims).
    """
    lower, upper = weyl(a, b)
    above = (upper[0] / lower[-1]).item() if lower[-1] > 0 else torch.inf
    return Interval((lower[0] / upper[-1]).item(), above)

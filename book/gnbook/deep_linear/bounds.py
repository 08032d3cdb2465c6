"""A lower bound on the condition number of linear networks of any depth, and eigenvalues of a sum of two matrices."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.shared.extremes import Interval
from gnlib.checks import EPS
from gnlib.linear.gauss_newton import partial_products, restrict_to_range
from gnlib.linear.moment import SecondMoment


def product_vector_bound(weights: Sequence[Tensor], second_moment: Float[Tensor, "d d"] | SecondMoment) -> float:
    r"""Return a lower bound from unit vectors that are products, exact for L = 1 and 2 (claim "Product vectors").

    The best v for a given u is an eigenvector, and so is the best u for a given v; each is taken once, starting from an
    eigenvector of each :math:`A_\ell A_\ell^\top`. It is 1, and says nothing, where :math:`\widehat G` is singular on
    the range of the data, or as good as singular in double precision.
    """
    weights, eigenvalues, _ = restrict_to_range(weights, second_moment, 0.0)
    root = eigenvalues.sqrt()
    products = partial_products(weights)
    above = torch.stack([a @ a.mT for a, _ in products])
    below = torch.stack([root[:, None] * (b.mT @ b) * root for _, b in products])
    smallest = _extreme_products(above, below, 0).min().item()
    largest = _extreme_products(above, below, -1).max().item()
    # a singular matrix has a null vector that is a product, and one of the starts finds it up to rounding
    norms = [torch.linalg.matrix_norm(w, 2).item() ** 2 for w in weights]
    scale = sum(math.prod(norms[:i] + norms[i + 1 :]) for i in range(len(norms))) * eigenvalues.max().item()
    rounding = len(norms) * sum(above.shape[1:2] + below.shape[1:2]) * EPS * scale
    return largest / (smallest + rounding) if smallest > rounding else 1.0


def _extreme_products(
    above: Float[Tensor, "L k k"], below: Float[Tensor, "L d d"], end: int
) -> Float[Tensor, " starts"]:
    """Values of q at its smallest (`end` 0) or largest (-1) that the turns find, from a start for each layer."""

    def best(fixed: Tensor, forms: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
        shares = torch.einsum("si,lij,sj->sl", fixed, forms, fixed)
        values, vectors = torch.linalg.eigh(torch.einsum("sl,lij->sij", shares, others))
        return values[:, end], vectors[..., end]

    u = torch.linalg.eigh(above).eigenvectors[..., end]
    _, v = best(u, above, below)
    values, _ = best(v, below, above)
    return values


def weyl(a: Float[Tensor, " n"], b: Float[Tensor, " n"]) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    r"""Return the best lower and upper bounds that Weyl's inequalities give for each eigenvalue of a sum.

    Both are in descending order, whatever the order of a and b (Zhao 2024, Lemma 5; Weyl 1912).
    """
    a, b = (v.sort(descending=True).values for v in (a, b))
    n = len(a)
    upper = torch.stack([(a[: q + 1] + b[: q + 1].flip(0)).min() for q in range(n)])
    lower = torch.stack([(a[q:] + b[q:].flip(0)).max() for q in range(n)])
    return lower, upper


def sum_bounds(a: Float[Tensor, " n"], b: Float[Tensor, " n"]) -> Interval:
    r"""Return the bounds of Zhao 2024, Eq. 12, on the condition number of a positive definite sum of two matrices.

    The paper states both with absolute values for all symmetric matrices, where they fail (see the claims).
    """
    lower, upper = weyl(a, b)
    above = (upper[0] / lower[-1]).item() if lower[-1] > 0 else torch.inf
    return Interval((lower[0] / upper[-1]).item(), above)

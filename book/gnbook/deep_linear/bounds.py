"""A lower bound on the condition number of linear networks of any depth."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import EPS
from gnlib.linear.gauss_newton import partial_products, restrict_to_range
from gnlib.linear.moment import SecondMoment


def product_vector_bound(weights: Sequence[Tensor], second_moment: Float[Tensor, "d d"] | SecondMoment) -> float:
    r"""Return a lower bound from unit vectors that are products, exact for L = 1 and 2 (claim "Product vectors").

    The best v for a given u is an eigenvector, and so is the best u for a given v; each is taken once, starting from an
    eigenvector of each :math:`A_\ell A_\ell^\top`. With :func:`gnlib.linear.bounds.sharp_linear` it encloses the
    condition number. It is 1, and says nothing, where :math:`\widehat G` is singular on the range of the data, or as
    good as singular in double precision.
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

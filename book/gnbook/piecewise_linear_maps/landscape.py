r"""The loss as a quadratic form in the weights of one layer, and its spectrum (Riedi 2022, sections 3.4 to 3.6).

In a region of weights the outputs on sample i are :math:`M_i D_i W z_i + B_i`. With :math:`X_i = M_i D_i` (k x m), the
`products`, and the weights row by row, as torch flattens them, the quadratic term of the mean squared error is

.. math:: w^\top A w, \qquad A = \frac1n \sum_i X_i^\top X_i \otimes z_i z_i^\top,

the diagonal block of the Gauss-Newton matrix that belongs to W. Condition numbers of this module are those of the
paper's Q, with :math:`A = Q^\top Q`: ratios of singular values, whose squares are the book's :math:`\kappa(A)`.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.shared.extremes import resolved_squares
from gnlib.checks import numerical_rank


def quadratic_form(products: Float[Tensor, "n k m"], z: Float[Tensor, "n d"]) -> Float[Tensor, "md md"]:
    r"""Return :math:`A`, half the Hessian of the mean squared error, for weights row by row (output index outer)."""
    factor = torch.einsum("nkm,nd->nkmd", products, z).flatten(0, 1).flatten(1)
    return factor.mT @ factor / len(z)


def quadratic_form_gram(products: Float[Tensor, "n k m"], z: Float[Tensor, "n d"]) -> Float[Tensor, "nk nk"]:
    r"""Return the Gram form, :math:`\frac1n (z_i \cdot z_j) X_i X_j^\top`, with the same non-zero eigenvalues."""
    (n, k, _), rows = products.shape, products.flatten(0, 1)
    return ((rows @ rows.mT).view(n, k, n, k) * (z @ z.mT)[:, None, :, None]).view(n * k, n * k) / n


def riedi_lemma_8(product: Float[Tensor, "k m"], z: Float[Tensor, " d"]) -> Float[Tensor, "kd md"]:
    r"""Return the matrix Q of Riedi 2022, Lemma 8, as printed: :math:`\operatorname{diag}(z) \otimes MD`.

    :math:`\|Q w\|` is NOT :math:`\|M D W z\|` unless z has one non-zero entry at most. With w column by column, as
    here, it is for :math:`z^\top \otimes MD`.
    """
    return torch.block_diag(*(entry * product for entry in z))


def riedi_corollary_11(products: Float[Tensor, "n k m"], z: Float[Tensor, "n d"]) -> float:
    r"""Return the right side of Riedi 2022, Corollary 11: :math:`\frac Cc \max_j \bar z_j / \min_j^* \bar z_j`.

    C and c are the largest and smallest singular values of all :math:`X_i`, :math:`\bar z_j` the root of the mean
    square of input j. It is NOT a bound of the condition number of Q in general; :func:`landscape_condition` is.
    """
    (largest, smallest), means = _ends(products), z.square().mean(0)
    return _root_ratio(largest.max() * means.max(), smallest.min() * means[means > 0].min())


def landscape_condition(products: Float[Tensor, "n k m"], z: Float[Tensor, "n d"]) -> float:
    """Return an upper bound of the condition number of Q, the smaller one of claim "Riedi Corollary 11, repaired".

    With the smallest of m singular values of each product it takes the pseudo-condition number of z, with that of k the
    smallest of n of z; infinite where neither is finite.
    """
    singular = torch.linalg.svdvals(z)
    data, rows = singular[0] / singular[numerical_rank(singular, max(z.shape)) - 1], resolved_squares(z.mT)
    (largest, smallest), (_, smallest_rows) = _ends(products), _ends(products.mT)
    return min(
        _root_ratio(largest.max() * data**2, smallest.min()),
        _root_ratio(largest.max() * rows[0], smallest_rows.min() * rows[1]),
    )


def _ends(products: Float[Tensor, "n k m"]) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Return the extreme eigenvalues of each `X_i^T X_i`."""
    largest, smallest = zip(*(resolved_squares(x) for x in products), strict=True)
    return torch.stack(largest), torch.stack(smallest)


def _root_ratio(top: Tensor, bottom: Tensor) -> float:
    return math.sqrt(top / bottom) if bottom > 0 else math.inf

r"""The loss as a quadratic form in the weights of one layer, and its spectrum (Riedi 2022, sections 3.4 to 3.6).

In a region of weights the outputs on sample i are :math:`M_i D_i W z_i + B_i`. With :math:`X_i = M_i D_i` (k x m) and
the weights row by row, as torch flattens them, the quadratic term of the mean squared error is

.. math:: w^\top A w, \qquad A = \frac1n \sum_i X_i^\top X_i \otimes z_i z_i^\top,

the diagonal block of the Gauss-Newton matrix that belongs to W. For one sample its non-zero eigenvalues are
:math:`s_j^2(X) \|z\|^2`: the data are a common factor. The paper has :math:`\operatorname{diag}(z)^2` in place of
:math:`z z^\top`, and with it a condition number of the data that is not there (see the claims).

Condition numbers of this module are those of the paper's Q, with :math:`A = Q^\top Q`: ratios of singular values, whose
squares are the book's :math:`\kappa(A)`.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.shared.extremes import resolved_squares
from gnlib.checks import as_float64, numerical_rank


def quadratic_form(products: Float[Tensor, "n k m"], z: Float[Tensor, "n d"]) -> Float[Tensor, "md md"]:
    r"""Return :math:`A = \frac1n \sum_i X_i^\top X_i \otimes z_i z_i^\top`, half the Hessian of the mean squared error.

    Riedi 2022, Lemma 8 and Eq. 55 are about this matrix, for weights row by row (output index outer). The products are
    the matrices :math:`X_i = M_i D_i` of :func:`gnbook.piecewise_linear_maps.one_layer.layer_factors`, the samples the
    inputs of the layer.
    """
    products, z = _checked(products, z)
    factor = torch.einsum("nkm,nd->nkmd", products, z).flatten(0, 1).flatten(1)
    return factor.mT @ factor / len(z)


def quadratic_form_gram(products: Float[Tensor, "n k m"], z: Float[Tensor, "n d"]) -> Float[Tensor, "nk nk"]:
    r"""Return the Gram form, :math:`\frac1n (z_i \cdot z_j) X_i X_j^\top`, with the same non-zero eigenvalues."""
    products, z = _checked(products, z)
    (n, k, _), rows = products.shape, products.flatten(0, 1)
    return ((rows @ rows.mT).view(n, k, n, k) * (z @ z.mT)[:, None, :, None]).view(n * k, n * k) / n


def riedi_lemma_8(product: Float[Tensor, "k m"], z: Float[Tensor, " d"]) -> Float[Tensor, "kd md"]:
    r"""Return the matrix Q of Riedi 2022, Lemma 8, as printed: :math:`\operatorname{diag}(z) \otimes MD`.

    Its singular values are :math:`s_i(MD)\, |z_j|`, but :math:`\|Q w\|` is NOT :math:`\|M D W z\|` unless z has one
    non-zero entry at most. The matrix for which it is, with w column by column as here, is :math:`z^\top \otimes MD`.
    """
    products, z = _checked(product[None], z[None])
    return torch.block_diag(*(entry * products[0] for entry in z[0]))


def riedi_corollary_11(products: Float[Tensor, "n k m"], z: Float[Tensor, "n d"]) -> float:
    r"""Return the right side of Riedi 2022, Corollary 11: :math:`\frac Cc \max_j \bar z_j / \min_j^* \bar z_j`.

    C and c are the largest and smallest singular values of all :math:`X_i`, :math:`\bar z_j` the root of the mean
    square of input j. It is NOT a bound of the condition number of Q in general; :func:`landscape_condition` is. It is
    infinite where c is zero.
    """
    products, z = _checked(products, z)
    largest, smallest = _ends(products)
    means = z.square().mean(0)
    return _root_ratio(largest.max() * means.max(), smallest.min() * means[means > 0].min())


def landscape_condition(products: Float[Tensor, "n k m"], z: Float[Tensor, "n d"]) -> float:
    r"""Return an upper bound of the condition number of Q: Corollary 11 of Riedi 2022, repaired.

    With singular values zero-padded to the smaller size that applies,

    .. math::
        \kappa(Q) \le \frac{\max_i s_1(X_i)}{\min_i s_m(X_i)}\, \kappa(z) , \qquad
        \kappa(Q) \le \frac{\max_i s_1(X_i)}{\min_i s_k(X_i)}\, \frac{s_1(z)}{s_n(z)} ,

    with the pseudo-condition number of the `n x d` matrix z in the first, and the smallest of n singular values in the
    second: it takes independent samples. The first is finite for :math:`k \ge m` at most, the second for :math:`k \le
    m`. Both are equalities if all :math:`X_i` are equal. The smaller of both is returned, infinite where neither is
    finite.
    """
    products, z = _checked(products, z)
    singular = torch.linalg.svdvals(z)
    rank = numerical_rank(singular, max(z.shape))
    largest, smallest = _ends(products)
    _, smallest_rows = _ends(products.mT)
    data, rows = (singular[0] / singular[rank - 1]) ** 2, resolved_squares(z.mT)
    return min(
        _root_ratio(largest.max() * data, smallest.min()),
        _root_ratio(largest.max() * rows[0], smallest_rows.min() * rows[1]),
    )


def _ends(products: Float[Tensor, "n k m"]) -> tuple[Float[Tensor, " n"], Float[Tensor, " n"]]:
    """Return the extreme eigenvalues of each `X_i^T X_i`."""
    largest, smallest = zip(*(resolved_squares(x) for x in products), strict=True)
    return torch.stack(largest), torch.stack(smallest)


def _root_ratio(top: Tensor, bottom: Tensor) -> float:
    return math.sqrt(top / bottom) if bottom > 0 else math.inf


def _checked(products: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    products, z = as_float64(products, "products"), as_float64(z, "z")
    if not z.any():
        raise ValueError("z is zero: the outputs do not depend on the weights, and there is no condition number.")
    return products, z

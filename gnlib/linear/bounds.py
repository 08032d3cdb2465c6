"""Bounds for deep linear networks (Zhao 2024, sections 4.1 and 4.2, appendix E), and a sharper one.

All are evaluated on the range of the second moment (see `gnlib.linear.restrict_to_range`): where it is not invertible
they are those of the equivalent network of fewer inputs, still bounds, and closer ones.

J. Zhao, S. P. Singh, A. Lucchi (2024), NeurIPS 37.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.checks import as_weights
from gnlib.eigen.dense import graded_smallest
from gnlib.eigen.scale import exponent_of, scaled, size_of, times_power
from gnlib.linear.gauss_newton import partial_products, restrict_to_range
from gnlib.linear.moment import Moment
from gnlib.linear.network import add_skip


class Lemma2(NamedTuple):
    """The two upper bounds of Lemma 2: the convex combination, and the maximum."""

    first: float
    second: float


class Lemma2Terms(NamedTuple):
    r"""Extreme eigenvalues that Lemma 2 combines, an entry for each layer :math:`\ell = 1, \dots, L`.

    Above it they are of the k x k matrices :math:`A_\ell A_\ell^\top` (the smallest is zero where a layer above is
    narrower than k), below it of :math:`B_\ell^\top B_\ell` on the range of the data; `data` is the condition number of
    the second moment there.
    """

    above_largest: Float[Tensor, " L"]
    above_smallest: Float[Tensor, " L"]
    below_largest: Float[Tensor, " L"]
    below_smallest: Float[Tensor, " L"]
    data: float

    @property
    def alpha(self) -> Float[Tensor, " L"]:
        r""":math:`\alpha_\ell = \sigma_{\min}^2(A_\ell) \sigma_{\min}^2(B_\ell)`."""
        return self.above_smallest * self.below_smallest

    @property
    def gamma(self) -> Float[Tensor, " L"]:
        r"""Weights :math:`\gamma_\ell = \alpha_\ell / \sum_i \alpha_i` of the convex combination."""
        return self.alpha / self.alpha.sum()

    @property
    def kappa_above(self) -> Float[Tensor, " L"]:
        r""":math:`\kappa(A_\ell)^2`."""
        return self.above_largest / self.above_smallest

    @property
    def kappa_below(self) -> Float[Tensor, " L"]:
        r""":math:`\kappa(B_\ell)^2`."""
        return self.below_largest / self.below_smallest


def zhao_lemma_1(weights: Sequence[Tensor], second_moment: Moment, skip: float = 0.0) -> float:
    r"""Return the upper bound of Zhao 2024, Lemma 1 (Eq. 6), for two weight matrices V (first) and W.

    .. math:: \kappa(\widehat G) \le \kappa(\Sigma)\,
        \frac{\sigma_{\max}^2(W) + \sigma_{\max}^2(V)}{\sigma_{\min}^2(W) + \sigma_{\min}^2(V)}

    An equality where the data are white. Infinite where both W and V are singular.

    Examples
    --------
    >>> import torch
    >>> weights, moment = [torch.diag(torch.tensor([2.0, 1.0]))] * 2, torch.diag(torch.tensor([4.0, 1.0]))
    >>> round(zhao_lemma_1(weights, moment), 6)
    16.0
    """
    if len(weights) != 2:
        given = f"{len(weights)} were given; zhao_lemma_2 takes any number."
        raise ValueError(f"Lemma 1 is about two weight matrices, and {given}")
    return zhao_lemma_2(weights, second_moment, skip).first


def zhao_lemma_2(weights: Sequence[Tensor], second_moment: Moment, skip: float = 0.0) -> Lemma2:
    r"""Return the two upper bounds of Zhao 2024, Lemma 2 (with `skip`, Eq. 7).

    .. math:: \kappa(\widehat G)
        \le \kappa(\Sigma) \sum_\ell \gamma_\ell\, \kappa(A_\ell)^2 \kappa(B_\ell)^2
        \le \kappa(\Sigma) \max_\ell \kappa(A_\ell)^2 \kappa(B_\ell)^2

    The first is evaluated as the ratio of sums
    :math:`\sum_\ell \sigma_{\max}^2(A_\ell) \sigma_{\max}^2(B_\ell) / \sum_\ell \alpha_\ell`, which needs a single
    :math:`\alpha_\ell > 0`; the second is infinite where any :math:`\alpha_\ell = 0`.

    Examples
    --------
    >>> import torch
    >>> weights = [torch.diag(torch.tensor([2.0, 1.0])), torch.eye(2), torch.eye(2)]
    >>> [round(bound, 6) for bound in zhao_lemma_2(weights, torch.eye(2))]
    [3.0, 4.0]
    """
    terms = zhao_lemma_2_terms(_of_usual_size(weights, skip), second_moment)
    largest = terms.above_largest * terms.below_largest
    first = (largest.sum() / terms.alpha.sum()).item() if terms.alpha.any() else torch.inf
    second = (largest / terms.alpha).max().item() if terms.alpha.all() else torch.inf
    return Lemma2(terms.data * first, terms.data * second)


def zhao_lemma_2_terms(weights: Sequence[Tensor], second_moment: Moment, skip: float = 0.0) -> Lemma2Terms:
    """Return the extreme eigenvalues that Lemma 2 combines (Zhao 2024, appendix E).

    Examples
    --------
    >>> import torch
    >>> weights = [torch.diag(torch.tensor([2.0, 1.0])), torch.eye(2), torch.eye(2)]
    >>> zhao_lemma_2_terms(weights, torch.eye(2)).below_largest.round(decimals=6)
    tensor([1., 4., 4.], dtype=torch.float64)
    """
    weights, eigenvalues, _ = restrict_to_range(weights, second_moment, skip)
    above, below = zip(*partial_products(weights), strict=True)
    extremes = *_stack_extremes([a.mT for a in above]), *_stack_extremes(below)
    return Lemma2Terms(*extremes, (eigenvalues.max() / eigenvalues.min()).item())


def sharp_linear(weights: Sequence[Tensor], second_moment: Moment, skip: float = 0.0) -> float:
    r"""Return an upper bound that keeps the data whole, never above the first of Lemma 2 and exact for L = 1 and 2.

    .. math:: \kappa(\widehat G) \le
        \frac{\lambda_{\max}\bigl(\sum_\ell \lambda_{\max}(A_\ell A_\ell^\top)\, S_\ell\bigr)}
             {\lambda_{\min}\bigl(\sum_\ell \lambda_{\min}(A_\ell A_\ell^\top)\, S_\ell\bigr)},
        \qquad S_\ell = \Sigma^{1/2} B_\ell^\top B_\ell \Sigma^{1/2},

    because each :math:`A_\ell A_\ell^\top` lies between its extreme eigenvalues times the identity. Infinite where the
    sum below is singular.

    Examples
    --------
    >>> import torch
    >>> weights, moment = [torch.diag(torch.tensor([2.0, 1.0])), torch.eye(2)], torch.diag(torch.tensor([1.0, 4.0]))
    >>> round(sharp_linear(weights, moment), 6), round(zhao_lemma_1(weights, moment), 6)
    (1.6, 10.0)
    """
    weights, eigenvalues, _ = restrict_to_range(_of_usual_size(weights, skip), second_moment)
    root, _ = scaled(eigenvalues.sqrt())
    products = partial_products(weights)
    largest, smallest = _stack_extremes([a.mT for a, _ in products])
    factors = torch.stack([root[:, None] * (b.mT @ b) * root for _, b in products])
    top = torch.linalg.eigvalsh(torch.einsum("l,lij->ij", largest, factors))[-1]
    bottom = graded_smallest(torch.einsum("l,lij->ij", smallest, factors))
    return float("inf") if bottom is None else top.item() / bottom[0]


def extreme_squares(matrix: Float[Tensor, "rows columns"]) -> tuple[Tensor, Tensor]:
    """Return the extreme eigenvalues of `matrix.T @ matrix`; the smallest is zero with fewer rows than columns."""
    rows, columns = matrix.shape
    if rows > 2 * columns:
        matrix = torch.linalg.qr(matrix, mode="r").R  # same singular values, not squared
    s = torch.linalg.svdvals(matrix)
    return s[0] ** 2, s[-1] ** 2 if rows >= columns else torch.zeros_like(s[0])


def _of_usual_size(weights: Sequence[Tensor], skip: float) -> list[Tensor]:
    """Return weights with their skips over a power of two, which no condition number knows of."""
    weights = add_skip(as_weights(weights), skip)
    exponent = exponent_of(max(map(size_of, weights)))
    return [times_power(w, -exponent) for w in weights]


def _stack_extremes(matrices: Sequence[Float[Tensor, "_rows _columns"]]) -> tuple[Tensor, Tensor]:
    largest, smallest = zip(*map(extreme_squares, matrices), strict=True)
    return torch.stack(largest), torch.stack(smallest)

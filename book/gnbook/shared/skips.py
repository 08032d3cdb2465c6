r"""Bounds on the singular values of a layer with a skip, and on the condition number of residual networks.

Zhao 2024, section 4.3, has the singular values of :math:`W + \beta I` from those of W alone, which is right for
symmetric positive semi-definite W only. In general the spectrum of :math:`W + W^\top` has a say (Riedi 2022, section
4): :math:`(W + \beta I)^\top (W + \beta I) = W^\top W + \beta (W + W^\top) + \beta^2 I`.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.shared.extremes import Interval
from gnlib.checks import as_float64, as_weights
from gnlib.linear.gauss_newton import restrict_to_range
from gnlib.linear.moment import SecondMoment
from gnlib.linear.network import add_skip, as_skip


def skip_bounds(
    weight: Float[Tensor, "_out _in"], skip: float, subspace: Float[Tensor, "_in p"] | None = None
) -> Interval:
    r"""Return bounds on all singular values of `weight + skip * eye(out, in)`.

    Let s and S be the smallest and the largest of the min(out, in) singular values of W, and t and T the smallest and
    the largest eigenvalue of the symmetric part of its leading square block. For :math:`\beta \ge 0`, with
    :math:`(\cdot)_+ = \max(\cdot, 0)` and :math:`t_* = \max(t, -\max(s, \beta))`, they lie between the square roots of

    .. math:: (\beta + t_*)^2 + (s^2 - t_*^2)_+ \qquad\text{and}\qquad S^2 + 2 \beta T + \beta^2 .

    Negative :math:`\beta` are those of the layer -W. The upper bound and, where :math:`\beta \ge -t` and :math:`s \ge
    |t|`, the lower one are Riedi 2022, Lemma 21, extended to rectangular layers. Elsewhere the lower bound is larger,
    and never below that of Lemma 17. From these numbers alone no better bounds follow (theorem "Skip across one layer"
    of the claims). Orthonormal columns of a subspace say which inputs matter, for layers with `out >= in`.
    """
    (weight,), skip = as_weights([weight]), as_skip(skip)
    rows, columns = weight.shape
    if subspace is not None:
        subspace = as_float64(subspace, "subspace")
    elif rows < columns:
        weight = weight.mT
    if skip < 0:
        weight, skip = -weight, -skip
    block = weight[: weight.shape[1]]
    if subspace is not None:
        weight, block = weight @ subspace, subspace.mT @ (block @ subspace)
    singular = torch.linalg.svdvals(weight)
    symmetric = torch.linalg.eigvalsh((block + block.mT) / 2)
    smallest, least = singular[-1].item(), symmetric[0].item()
    least = max(least, -max(smallest, skip))
    lower = (skip + least) ** 2 + max(smallest**2 - least**2, 0.0)
    upper = singular[0].item() ** 2 + 2 * skip * symmetric[-1].item() + skip**2
    return Interval(math.sqrt(lower), math.sqrt(max(upper, 0.0)))


def residual_bound(weights: Sequence[Tensor], second_moment: Float[Tensor, "d d"] | SecondMoment, skip: float) -> float:
    r"""Return an upper bound for residual networks from the weights and their symmetric parts, layer by layer.

    .. math:: \kappa(\widehat G) \le \kappa(\Sigma)\,
        \frac{\sum_\ell \prod_{i < \ell} (u_i^\uparrow)^2 \prod_{i > \ell} (u_i^\downarrow)^2}
             {\sum_\ell \prod_{i < \ell} (l_i^\uparrow)^2 \prod_{i > \ell} (l_i^\downarrow)^2},

    with the bounds :math:`l_i` and :math:`u_i` of :func:`skip_bounds` on the singular values of layer i, on the
    subspace that the layers below it reach from the range of the data (for :math:`i < \ell`), or that those above it
    reach from the outputs (for :math:`i > \ell`, transposed). It takes the place of Zhao 2024, Eq. 8, is never below
    the first bound of Eq. 7 (:func:`gnlib.linear.bounds.zhao_lemma_2`), and tends to :math:`\kappa(\Sigma)` as the skip
    grows where all hidden layers have one width, of at least d and k. Infinite where all terms below vanish; a layer
    counts as singular where those below it, or above it, have more dimensions to carry through it than it has. The skip
    is added to every weight.
    """
    weights, skip = as_weights(weights), as_skip(skip)
    _, eigenvalues, basis = restrict_to_range(weights, second_moment)
    outputs = torch.eye(len(weights[-1]), dtype=basis.dtype, device=basis.device)
    below = _products_of_bounds(weights[:-1], skip, basis)
    above = _products_of_bounds([w.mT for w in reversed(weights[1:])], skip, outputs)
    terms = [(b.lower * a.lower, b.upper * a.upper) for b, a in zip(below, reversed(above), strict=True)]
    smallest, largest = (sum(bound**2 for bound in bounds) for bounds in zip(*terms, strict=True))
    data = (eigenvalues.max() / eigenvalues.min()).item()
    return data * largest / smallest if smallest > 0 else math.inf


def kaiming_skip_limits(skip: float) -> Interval:
    r"""Return the limits of the extreme singular values of a square Kaiming layer with a skip as its width grows.

    The m x m weight has independent normal entries of variance 1/m. With :math:`R = \sqrt{1 + 8 \beta^2}` the squares
    of the two limits are

    .. math:: \frac{(R - 3)^3}{8 (R - 1)} \;(|\beta| > 1; \text{ else } 0)
        \qquad\text{and}\qquad \frac{(R + 3)^3}{8 (R + 1)} ,

    the edges of the spectrum of :math:`(W + \beta I)^\top (W + \beta I)`, derived in the section "Kaiming layer with a
    skip" of the claims.
    """
    skip = as_skip(skip)
    root = math.sqrt(1 + 8 * skip**2)
    lower = (root - 3) ** 3 / (8 * (root - 1)) if abs(skip) > 1 else 0.0
    return Interval(math.sqrt(lower), math.sqrt((root + 3) ** 3 / (8 * (root + 1))))


def _products_of_bounds(weights: Sequence[Tensor], skip: float, frame: Float[Tensor, "_in p"]) -> list[Interval]:
    """Bounds on the singular values of the products of the first 0, 1, 2, ... layers, on the span of the frame."""
    products = [Interval(1.0, 1.0)]
    for w, shifted in zip(weights, add_skip(weights, skip), strict=True):
        widening = w.shape[0] >= w.shape[1]
        lower, upper = skip_bounds(w, skip, frame if widening else None)
        products.append(Interval(products[-1].lower * lower * widening, products[-1].upper * upper))
        frame = torch.linalg.qr(shifted @ frame).Q  # spans all that the layers so far can reach
    return products

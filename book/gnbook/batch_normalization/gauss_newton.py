r"""The Gauss-Newton matrix of a network with one batch-normalised hidden layer, in its smallest exact form.

Everything that the outputs and their derivatives can do with n samples happens in the column space of the centred data
and, where there is a shift, along the constant. With the SVD :math:`(x - \bar x) / \sqrt n = U R Q^\top`, where
:math:`R^2 = \operatorname{diag}(s)` holds the eigenvalues of the centred second moment :math:`\Sigma_c`, hidden unit u
has the coordinates :math:`e_u = R Q^\top v_u / s_u` in the basis U, and its derivative by v_u is :math:`N_u R Q^\top`
with :math:`N_u = I - e_u e_u^\top`. A Gram matrix of size n k becomes one of size r k.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.shared.hidden_layer import as_hidden_layer, sum_over_units
from gnlib.checks import EPS, as_float64


class NormalizedUnits(NamedTuple):
    r"""A network :math:`f(x) = W (\gamma \odot z + \beta)`, z the batch-normalised V x, in coordinates of the data.

    W is `output`; the non-zero `eigenvalues` s of the centred second moment descend, with eigenvectors Q as `basis`;
    `hidden` holds the coordinates :math:`e_u` of the normalised units, with :math:`\lVert e_u \rVert = 1` if `eps = 0`,
    else less; `variance` is what the units are divided by, squared, eps included.
    """

    output: Float[Tensor, "k m"]
    eigenvalues: Float[Tensor, " r"]
    basis: Float[Tensor, "d r"]
    mean: Float[Tensor, " d"]
    hidden: Float[Tensor, "m r"]
    variance: Float[Tensor, " m"]
    scale: Float[Tensor, " m"]
    shift: Float[Tensor, " m"]


def batch_norm_gauss_newton(
    weights: Sequence[Tensor],
    x: Float[Tensor, "n d"],
    *,
    affine: bool = False,
    mode: Literal["train", "eval"] = "train",
    **how: Any,
) -> Float[Tensor, "kr kr"]:
    r"""Return the reduced Gauss-Newton matrix of `f(x) = W batch_norm(V x)`, of size k r; the batch is all of x.

    It is that of the claim "BatchNorm in training mode, exactly", with the non-zero eigenvalues of
    :func:`batch_norm_gram`. A shift adds the constant over the samples as a coordinate, after the r others. If scale
    and shift are parameters too (`affine`), :math:`W_u W_u^\top \otimes \operatorname{diag}(e_u e_u^\top, 1)` is added
    for each unit. In evaluation mode mean and variance are numbers, those of the batch here, and data are not centred:
    :math:`N_u R^2 N_u` becomes :math:`F F^\top`, with F the coordinates of :math:`x / \sqrt n`. Output is the outer
    index.

    The matrix is graded as R is and, scaled to a unit diagonal, no worse conditioned than the weights make it, so that
    the rounding of the data and of the products costs about `eps * sqrt(kappa)` in the smallest eigenvalue. Samples
    that are all equal are refused, and a unit that is constant over the batch where `eps = 0`. Eps, scale and shift are
    as for :func:`normalized_units`.
    """
    if mode not in ("train", "eval"):
        raise ValueError(f"mode is {mode!r}; 'train' or 'eval' was expected.")
    units = normalized_units(weights, x, **how)
    w, (r, m), k = units.output, units.hidden.mT.shape, len(units.output)
    size = r + (mode == "eval" or affine or bool(units.shift.any()))

    e, features = w.new_zeros(2, m, size)
    e[:, :r] = units.hidden
    features[:, :r] = units.scale[:, None] * units.hidden
    features[:, r:] = units.shift[:, None]
    gram, correction = _data_gram(units, e, mode)

    matrix = w.new_empty(k, size, k, size)
    for a in range(k):
        pairs = w[a] * w
        by_weights = pairs * units.scale**2 / units.variance
        half = (by_weights[:, None] * e.mT) @ correction
        blocks = half + half.mT + by_weights.sum(1)[:, None, None] * gram
        if affine:
            blocks += (pairs[:, None] * e.mT) @ e
            blocks[:, r, r] += pairs.sum(1)
        blocks[a] += features.mT @ features
        matrix[a] = blocks.movedim(0, 1)
    matrix = matrix.view(k * size, k * size)
    return (matrix + matrix.mT) / 2


def batch_norm_gram(weights: Sequence[Tensor], x: Float[Tensor, "n d"]) -> Float[Tensor, "nk nk"]:
    r"""Return the Gram form of the Gauss-Newton matrix of `f(x) = W batch_norm(V x)`, in training mode.

    The batch is all of x. Hidden units are centred and divided by their standard deviation s_u (biased, `eps = 0`; no
    scale and shift), which depend on V too. With the centring projector P and the normalised unit z_u,

    .. math:: J_u = \frac1{s_u} \Bigl(P - \frac{z_u z_u^\top}n\Bigr) X.

    Row `i k + a` belongs to output a of sample i.
    """
    v, w, x = as_hidden_layer(weights, x)
    n = len(x)
    centred = x - x.mean(0)  # before the products, so that a large mean costs no digits
    hidden = centred @ v.mT
    deviation = hidden.square().mean(0).sqrt()
    _check_units(deviation, v, x)
    hidden = hidden / deviation
    # s^2 J J^T = (P - z z^T / n) K (P - z z^T / n) = P K P + z g^T + g z^T, with g as follows
    data_gram = centred @ centred.mT
    product = data_gram @ hidden / n
    correction = (hidden * product).mean(0) / 2 * hidden - product

    def blocks(pairs: Float[Tensor, "b m"], rows: slice, rest: slice) -> Float[Tensor, "b i j"]:
        pairs = pairs / deviation.square()
        total = (pairs[:, None] * hidden[rows]) @ correction[rest].mT
        total += (pairs[:, None] * correction[rows]) @ hidden[rest].mT
        return total.addcmul_(pairs.sum(1)[:, None, None], data_gram[rows, rest])

    return sum_over_units(hidden, w, blocks)


def normalized_units(
    weights: Sequence[Tensor],
    x: Float[Tensor, "n d"],
    *,
    eps: float = 0.0,
    scale: Float[Tensor, " m"] | None = None,
    shift: Float[Tensor, " m"] | None = None,
) -> NormalizedUnits:
    r"""Return the hidden layer of `f(x) = W batch_norm(V x)` in coordinates of the centred data.

    Eps is added to the variances; :math:`\gamma` and :math:`\beta`, one and zero if left out, are one number a unit.
    """
    v, w, x = as_hidden_layer(weights, x)
    scale = v.new_ones(len(v)) if scale is None else as_float64(scale, "scale")
    shift = v.new_zeros(len(v)) if shift is None else as_float64(shift, "shift")
    mean = x.mean(0)
    # centring leaves the rounding of the samples as they were, and no direction is known that is smaller than that
    _, s, qt = torch.linalg.svd(x - mean, full_matrices=False)
    rank = int((s > max(x.shape) * EPS * x.norm()).sum())
    if rank == 0:
        raise ValueError(f"x holds the same sample {len(x)} times, of which centring leaves nothing.")
    root, basis = s[:rank] / len(x) ** 0.5, qt[:rank].mT
    hidden = (v @ basis) * root
    variance = hidden.square().sum(1)
    if eps == 0:
        _check_units(variance.sqrt(), v, x)
    variance = variance + eps
    return NormalizedUnits(w, root**2, basis, mean, hidden / variance.sqrt()[:, None], variance, scale, shift)


def _data_gram(
    units: NormalizedUnits, e: Float[Tensor, "m size"], mode: str
) -> tuple[Float[Tensor, "size size"], Float[Tensor, "m size"]]:
    """Return the data Gram K and rows c_u such that the derivatives of unit u give `(e c^T + c e^T + K) / s^2`."""
    r, size = len(units.eigenvalues), e.shape[1]
    gram = e.new_zeros(size, size)
    gram[:r, :r] = units.eigenvalues.diag()
    if mode == "train":  # N R^2 N = R^2 + e c^T + c e^T
        turned = e @ gram
        return gram, (e * turned).sum(1, keepdim=True) / 2 * e - turned
    gram[r, :r] = gram[:r, r] = units.eigenvalues.sqrt() * (units.mean @ units.basis)
    gram[r, r] = units.mean.square().sum()
    return gram, torch.zeros_like(e)


def _check_units(deviation: Float[Tensor, " m"], v: Float[Tensor, "m d"], x: Float[Tensor, "n d"]) -> None:
    constant = deviation <= max(x.shape) * EPS * x.norm(dim=1).max() * v.norm(dim=1)
    if constant.any():
        raise ValueError(
            f"Hidden unit {int(constant.nonzero()[0])} is constant over the batch (n = {len(x)}), so it has no "
            "standard deviation to be divided by; pass eps > 0, or samples on which every unit varies."
        )

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

from gnbook.shared.hidden_layer import as_hidden_layer
from gnlib.checks import EPS, as_float64


class NormalizedUnits(NamedTuple):
    r"""A network :math:`f(x) = W (\gamma \odot z + \beta)`, z the batch-normalised V x, in coordinates of the data."""

    output: Float[Tensor, "k m"]  # W
    eigenvalues: Float[Tensor, " r"]  # of the centred second moment, not zero, descending
    basis: Float[Tensor, "d r"]  # their eigenvectors Q
    mean: Float[Tensor, " d"]
    hidden: Float[Tensor, "m r"]  # the e_u of the normalised units, of length one if `eps = 0`
    variance: Float[Tensor, " m"]  # what the units are divided by, squared, eps included
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
    index; eps, scale and shift are as for :func:`normalized_units`.
    """
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
    r"""Return the Gram form of the Gauss-Newton matrix of `f(x) = W batch_norm(V x)`, in training mode with `eps = 0`.

    With the deviation s_u of a hidden unit, its normalised values z_u and the centring projector P, :math:`J_u =
    \frac1{s_u} (P - \frac1n z_u z_u^\top) X`. Row `i k + a` belongs to output a of sample i.
    """
    v, w, x = as_hidden_layer(weights, x)
    n, centred = len(x), x - x.mean(0)  # before the products, so that a large mean costs no digits
    hidden = centred @ v.mT
    deviation = hidden.square().mean(0).sqrt()
    z = hidden / deviation
    jacobians = (centred - torch.einsum("iu,ud->uid", z, z.mT @ centred) / n) / deviation[:, None, None]
    gram = torch.einsum("uij,au,bu->iajb", jacobians @ jacobians.mT, w, w).reshape(n * len(w), n * len(w))
    gram = gram + torch.kron(z @ z.mT, torch.eye(len(w), dtype=w.dtype, device=w.device))
    return (gram + gram.mT) / (2 * n)


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
    root, basis = s[:rank] / len(x) ** 0.5, qt[:rank].mT
    hidden = (v @ basis) * root
    variance = hidden.square().sum(1) + eps
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

r"""Bounds for one hidden layer of leaky ReLUs (Zhao 2024, section 5 and appendix H), and sharper ones.

With the samples in the rows of x, :math:`K = \frac1n x x^\top`, the hidden values h (n x m), :math:`\Gamma = \frac1n h
h^\top`, and :math:`D_u` the derivatives of unit u on the samples, the Gram matrix is (Zhao 2024, Eq. 10, over n)

.. math:: \widehat G = \sum_u D_u K D_u \otimes W_u W_u^\top + \Gamma \otimes I_k.

All bounds are on the eigenvalues of this `nk x nk` matrix. They cost eigenvalues of `n x n` and `k x k` matrices.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.shared.extremes import Interval, SpectrumBounds, ratio, resolved_squares
from gnbook.shared.hidden_layer import as_hidden_layer
from gnlib.checks import as_samples


class Lemma4(NamedTuple):
    """The two upper bounds that the proof of Lemma 4 arrives at; the second is not one in general."""

    first: float
    second: float


def zhao_lemma_4(weights: Sequence[Tensor], x: Float[Tensor, "n d"], slope: float) -> Lemma4:
    r"""Return the upper bound of Zhao 2024, Lemma 4 (Eq. 11), and the second one of its proof (Eq. 25 and 26).

    Smallest eigenvalues are those of the `n x n` and `k x k` matrices, zero where there are fewer features or units
    than that; the slope is from 0 to 1. The second is NOT a bound: the leaky ReLU can enlarge the largest eigenvalue of
    :math:`z z^\top`, :math:`z = x V^\top` (see the claims).
    """
    v, w, x = as_hidden_layer(weights, x)
    hidden, _ = _activations(v, x, slope)
    data, output, gamma, linear = (resolved_squares(factor.mT) for factor in (x, w, hidden, x @ v.mT))
    top, bottom = (data[end] * output[end] for end in (0, 1))
    first = ratio(top + gamma[0], slope**2 * bottom + gamma[1])
    second = ratio(top + linear[0], slope**2 * (bottom + linear[1]))
    return Lemma4(first, second)


def leaky_relu_ends(weights: Sequence[Tensor], x: Float[Tensor, "n d"], slope: float) -> SpectrumBounds:
    """Return bounds of the extreme of all `nk` eigenvalues, zeros among them, for any slope (claim "Active units").

    They are never worse than Lemma 4. The matrix is regular if the upper bound of the condition number is finite.
    """
    v, w, x = as_hidden_layer(weights, x)
    hidden, derivative = _activations(v, x, slope)
    n, k = len(x), len(w)
    pairs = (w[:, None] * w).view(k * k, -1)
    blocks = torch.linalg.eigvalsh((derivative.square() @ pairs.mT).view(n, k, k)).clamp_min(0)
    largest, smallest = resolved_squares(x.mT)
    factor = torch.linalg.qr(hidden.mT, mode="r").R.mT  # of Gamma, with no more columns than rows
    _, bottom = resolved_squares(_bordered(factor, smallest * blocks[:, 0]).mT)
    top, _ = resolved_squares(_bordered(factor, largest * blocks[:, -1]).mT)
    mean = (derivative * w.square().mean(0)) @ derivative.mT * (x @ x.mT) + hidden @ hidden.mT
    inner = torch.linalg.eigvalsh(mean).clamp_min(0)
    return SpectrumBounds(
        Interval(bottom.item() / n, inner[0].item() / n),
        Interval(inner[-1].item() / n, top.item() / n),
    )


def wide_leaky_relu_kernel(x: Float[Tensor, "n d"], slope: float) -> Float[Tensor, "n n"]:
    r"""Return the limit of :math:`h h^\top / m` for hidden weights of variance one and width m (Cho and Saul 2009).

    At Kaiming initialisation the condition number of the Gauss-Newton matrix tends to its own (claim "Wide limit").
    """
    x = as_samples(x)
    data_gram, norms = x @ x.mT, x.norm(dim=1)
    scale = torch.outer(norms, norms)
    cosine = (data_gram / scale.clamp_min(torch.finfo(x.dtype).tiny)).clamp(-1, 1)
    absolute = 2 / math.pi * scale * ((1 - cosine.square()).sqrt() + cosine.asin() * cosine)
    return (1 + slope) ** 2 / 4 * data_gram + (1 - slope) ** 2 / 4 * absolute


def _activations(v: Float[Tensor, "m d"], x: Float[Tensor, "n d"], slope: float) -> tuple[Tensor, Tensor]:
    """Return the hidden values and their derivatives, which at zero are the slope, as in torch."""
    linear = x @ v.mT
    derivative = torch.ones_like(linear).where(linear > 0, slope)
    return derivative * linear, derivative


def _bordered(hidden: Float[Tensor, "n m"], diagonal: Float[Tensor, " n"]) -> Float[Tensor, "n mn"]:
    """Return a factor of `hidden hidden^T + diag(diagonal)`: its singular values have twice the digits."""
    return torch.cat([hidden, diagonal.sqrt().diag()], 1)

r"""Residual networks of ReLUs: extreme eigenvalues of their kernels, and steps of gradient descent.

Between the first layer and the last one the layers are
:math:`z \mapsto (\beta z + W \operatorname{relu}(z)) / \sqrt{1 + \beta^2}`. The division keeps their outputs at one
size. It multiplies the outputs of a network by one number, and so changes no condition number.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.residual.linear import network
from gnlib.linear.network import as_skip


class Ends(NamedTuple):
    """The smallest and the largest eigenvalue of a Gauss-Newton matrix (times the number of samples)."""

    smallest: float
    largest: float

    @property
    def condition(self) -> float:
        """The condition number."""
        return self.largest / self.smallest


def relu_weights(
    widths: Sequence[int], seed: int, slope: float = 0.0, device: torch.device | str = "cpu"
) -> list[Tensor]:
    """Return Kaiming weights of the gain for ReLUs of a slope on the negative side: the root of two for none."""
    return [math.sqrt(2 / (1 + slope**2)) * w for w in network(widths, seed, device)]


def relu_outputs(weights: Sequence[Tensor], x: Float[Tensor, "n d"], skip: float) -> Float[Tensor, "n k"]:
    """Return the outputs of a network with skips of one strength on all layers but the first and the last."""
    scale = _scale(skip)
    first, *inner, last = weights
    z = x @ first.mT
    for w in inner:
        z = (skip * z + z.relu() @ w.mT) / scale
    return z.relu() @ last.mT


def relu_ends(weights: Sequence[Tensor], x: Float[Tensor, "n d"], skip: float, slope: float = 0.0) -> Ends:
    """Return the extreme eigenvalues of the Gauss-Newton matrix of such a network of n k weights or more."""
    first, *inner, last = weights
    k, scale = len(last), _scale(skip)

    def relu(z: Tensor) -> Tensor:
        return torch.where(z > 0, z, slope * z)

    def slopes(z: Tensor) -> Tensor:
        return torch.where(z > 0, 1, slope).to(z.dtype)[:, None]

    def part(inputs: Tensor, derivatives: Tensor) -> Tensor:
        """Share of a layer in the kernel, from its inputs and the derivatives of the outputs by its own."""
        rows = derivatives.flatten(0, 1)
        return torch.kron(inputs @ inputs.mT, rows.new_ones(k, k)) * (rows @ rows.mT)

    values = [x @ first.mT]
    for w in inner:
        values.append((skip * values[-1] + relu(values[-1]) @ w.mT) / scale)
    derivatives = slopes(values[-1]) * last  # samples, outputs, units
    kernel = part(relu(values[-1]), torch.eye(k).to(x).expand(len(x), k, k))
    for w, z in zip(inner[::-1], values[-2::-1], strict=True):
        kernel += part(relu(z) / scale, derivatives)
        derivatives = (skip * derivatives + slopes(z) * (derivatives @ w)) / scale
    eigenvalues = torch.linalg.eigvalsh(kernel + part(x, derivatives))
    return Ends(eigenvalues[0].item(), eigenvalues[-1].item())


def relu_steps(
    weights: Sequence[Tensor],
    x: Float[Tensor, "n d"],
    targets: Float[Tensor, "n k"],
    skip: float,
    rate: float,
    shares: Sequence[float],
    most: int = 5000,
) -> list[float]:
    """Return the steps of descent on half the sum of squares after which these shares of the loss are left."""
    losses: list[float] = []
    while len(losses) <= most and (not losses or losses[-1] > shares[-1] * losses[0]):
        weights = [w.detach().requires_grad_() for w in weights]
        loss = (relu_outputs(weights, x, skip) - targets).square().sum() / 2
        losses.append(loss.item())
        weights = [w - rate * slope for w, slope in zip(weights, torch.autograd.grad(loss, weights), strict=True)]
    return [next((step for step, loss in enumerate(losses) if loss <= share * losses[0]), math.inf) for share in shares]


def share_of_mean(x: Float[Tensor, "n d"]) -> float:
    """Return the square of the mean sample over the mean square of the samples."""
    return (x.mean(0).square().sum() / x.square().sum(1).mean()).item()


def _scale(skip: float) -> float:
    return math.sqrt(1 + as_skip(skip) ** 2)

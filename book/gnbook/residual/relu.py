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
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, linear

from gnbook.residual.linear import network
from gnbook.shared.training import GradientDescent, train
from gnlib import GaussNewton
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


class ReluNetwork(nn.Module):
    """A network with skips of one strength on all layers but the first and the last."""

    def __init__(self, weights: Sequence[Tensor], skip: float, slope: float = 0.0) -> None:
        super().__init__()
        self.weights = nn.ParameterList(weights)
        self.skip, self.slope, self.scale = skip, slope, math.sqrt(1 + as_skip(skip) ** 2)

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Return the outputs."""
        first, *inner, last = self.weights
        z = linear(x, first)
        for w in inner:
            z = (self.skip * z + linear(leaky_relu(z, self.slope), w)) / self.scale
        return linear(leaky_relu(z, self.slope), last)


def relu_ends(weights: Sequence[Tensor], x: Float[Tensor, "n d"], skip: float, slope: float = 0.0) -> Ends:
    """Return the extreme eigenvalues of the Gauss-Newton matrix of such a network of n k weights or more."""
    eigenvalues = len(x) * torch.linalg.eigvalsh(GaussNewton(ReluNetwork(weights, skip, slope), x).gram())
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

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().sum() / 2

    module = ReluNetwork(weights, skip)
    start = loss(module(x), targets).item()
    how = {"loss": loss, "optimizer": GradientDescent, "until": shares[-1] * start}
    found = train(module, x, targets, rate=rate, most=most, **how)
    return [found.steps_to(share * start) for share in shares]


def share_of_mean(x: Float[Tensor, "n d"]) -> float:
    """Return the square of the mean sample over the mean square of the samples."""
    return (x.mean(0).square().sum() / x.square().sum(1).mean()).item()

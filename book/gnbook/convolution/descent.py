r"""Gradient descent on networks of convolutions that learn to imitate another one, and their Gauss-Newton matrix.

Without an activation a network acts through its effective kernel alone, and virtual patches stand for all images. With
a ReLU between two convolutions the images themselves are needed.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from gnbook.convolution.gauss_newton import gauss_newton_of, virtual_patches
from gnbook.convolution.networks import as_convolutions, convolve
from gnbook.shared.training import GradientDescent, train


class Convolutions(nn.Module):
    """Convolutions without biases and without padding, linear or with a ReLU after each but the last."""

    def __init__(self, weights: Sequence[Tensor], strides: Sequence[int], *, relu: bool = False) -> None:
        super().__init__()
        self.weights = nn.ParameterList(w.detach().clone() for w in weights)
        self.strides, self.relu = strides, relu

    def forward(self, x: Float[Tensor, "n channels ..."]) -> Float[Tensor, "n k ..."]:
        """Return the outputs."""
        for layer, (w, stride) in enumerate(zip(self.weights, self.strides, strict=True)):
            x = convolve(x.relu() if self.relu and layer else x, w, stride)
        return x


def linear_steps(
    weights: Sequence[Tensor],
    other: Sequence[Tensor],
    x: Float[Tensor, "n c height width"],
    stride: int | Sequence[int] = 1,
    shares: Sequence[float] = (0.01, 0.0001),
    most: int = 20_000,
) -> list[float]:
    """Return the steps until a linear network imitates another one up to shares of the first loss.

    The rate is one over the largest eigenvalue at the start.
    """
    layers, samples = as_convolutions(weights, x, stride, 0)
    patches = virtual_patches(layers, samples)
    (some,) = patches  # without padding all positions are of one kind
    rate = 1 / torch.linalg.eigvalsh(gauss_newton_of(layers, patches))[-1].item()
    network, target = (Convolutions(filters, [layer.stride for layer in layers]) for filters in (weights, other))
    targets = target(some.images).detach()

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().sum() / 2

    start = loss(network(some.images), targets).item()
    how = {"loss": loss, "optimizer": GradientDescent, "rate": rate}
    found = train(network, some.images, targets, until=shares[-1] * start, most=most, **how)
    return [found.steps_to(share * start) for share in shares]


def relu_gauss_newton(
    weights: Sequence[Tensor], x: Float[Tensor, "n 1 height width"], stride: int = 1
) -> Float[Tensor, "p p"]:
    """Return the Gauss-Newton matrix of two convolutions with a ReLU between them, from one channel to one."""
    first, second = weights
    hidden, k = functional.conv2d(x, first, stride=stride), first.shape[-1]
    seen = functional.unfold(x, k, stride=stride).view(len(x), k * k, 1, *hidden.shape[2:])
    active = (seen * (hidden > 0)[:, None]).flatten(0, 1)
    by_first = functional.conv2d(active, second.movedim(0, 1), groups=len(first)).reshape(
        len(x), k * k * len(first), -1
    )
    jacobian = torch.cat([by_first, functional.unfold(hidden.relu(), second.shape[-1])], 1)
    return (jacobian @ jacobian.mT).mean(0)


def relu_loss_left(
    weights: Sequence[Tensor],
    other: Sequence[Tensor],
    x: Float[Tensor, "n 1 height width"],
    rate: float,
    counts: Sequence[int],
    stride: int = 1,
) -> list[float]:
    """Return the shares of the loss of such a network that are left after some steps towards another, in float32."""
    network, target = (Convolutions(some, (stride, 1), relu=True).float() for some in (weights, other))
    x = x.float()
    losses = train(network, x, target(x).detach(), rate=rate, most=max(counts), optimizer=GradientDescent).losses
    return [losses[step] / losses[0] for step in counts]

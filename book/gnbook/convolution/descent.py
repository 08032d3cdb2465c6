r"""Gradient descent on networks of two convolutions on squares that learn to imitate another one.

Without an activation a network acts through its effective kernel alone, and virtual patches stand for all images. With
a ReLU in between the images themselves are needed.
"""

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from gnbook.convolution.gauss_newton import gauss_newton_of, virtual_patches
from gnbook.convolution.networks import as_convolutions, convolve


def losses_of(
    weights: Sequence[Tensor],
    other: Sequence[Tensor],
    forward: Callable[..., Tensor],
    rate: float,
    until: float,
    most: int,
) -> list[float]:
    """Return half the squared distance to the outputs of another network before each step of gradient descent.

    Parameters
    ----------
    weights, other
        of the network that learns, and of the one that it imitates
    forward
        the outputs, from weights
    rate
        of the descent
    until
        a share of the first loss, at which it stops
    most
        steps
    """
    weights, losses, targets = list(weights), [], forward(other)
    while len(losses) <= most and (not losses or losses[-1] >= until * losses[0]):
        weights = [w.detach().requires_grad_() for w in weights]
        loss = (forward(weights) - targets).square().sum() / 2
        losses.append(loss.item())
        slopes = torch.autograd.grad(loss, weights)
        weights = [w - rate * slope for w, slope in zip(weights, slopes, strict=True)]
    return losses


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
    strides = [layer.stride for layer in layers]

    def forward(own: Sequence[Tensor]) -> Tensor:
        values = some.images
        for w, each in zip(own, strides, strict=True):
            values = convolve(values, w, each)
        return values

    losses = losses_of(weights, other, forward, rate, shares[-1], most)
    return [next((step for step, loss in enumerate(losses) if loss < share * losses[0]), math.inf) for share in shares]


def relu_outputs(
    weights: Sequence[Tensor], x: Float[Tensor, "n c height width"], stride: int = 1
) -> Float[Tensor, "n k rows columns"]:
    """Return the outputs of two convolutions with a ReLU in between; the stride is that of the first."""
    return functional.conv2d(functional.conv2d(x, weights[0], stride=stride).relu(), weights[1])


def relu_gauss_newton(
    weights: Sequence[Tensor], x: Float[Tensor, "n 1 height width"], stride: int = 1
) -> Float[Tensor, "p p"]:
    """Return the Gauss-Newton matrix, in the weights, of such a network of one input and one output channel."""
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
    """Return the shares of the mean loss that are left after some steps towards another network, in float32."""
    weights, other = ([w.float() for w in some] for some in (weights, other))
    images, count = x.float(), len(x)

    def forward(own: Sequence[Tensor]) -> Tensor:
        return relu_outputs(own, images, stride) / count**0.5

    losses = losses_of(weights, other, forward, rate, 0.0, max(counts))
    return [losses[step] / losses[0] for step in counts]

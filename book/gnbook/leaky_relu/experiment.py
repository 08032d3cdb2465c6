"""Experiment of both pages of the chapter: one hidden layer of leaky ReLUs on images in several preparations."""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

import gnlib
from gnbook.shared.hidden_layer import leaky_relu_gram
from gnbook.shared.training import train

KINDS = {kind: kind for kind in ("raw", "standardised", "centred")}
KINDS |= {"alone": "white", "half resolution": "more images than pixels", "among others": "nearly white"}
"""Preparations of images by their names in the kept table."""


def preparations(images: Float[Tensor, "n d"]) -> dict[str, Tensor]:
    """Return images as they are, standardised (one mean, one deviation), less the mean image, and white."""
    return {
        "raw": images,
        "standardised": (images - images.mean()) / images.std(),
        "centred": images - images.mean(0),
        "white": gnlib.whiten(images),
    }


def image_sets(n: int, device: torch.device) -> dict[str, Tensor]:
    """Return the sets of `n` images of MNIST in the figure of condition numbers, by their names in the kept table."""
    images = gnlib.load("mnist", 2 * n)[0].to(device)
    found = preparations(images[:n])
    found["alone"] = found.pop("white")
    half = gnlib.load("mnist", n, stride=2)[0].to(device)
    return found | {"half resolution": gnlib.whiten(half), "among others": gnlib.whiten(images)[:n]}


def weights_of(x: Float[Tensor, "n d"], width: int, seed: int = 0, *, outputs: int = 10) -> list[Tensor]:
    """Draw the weights `[V, W]` of a network for these samples, on their device."""
    drawn = gnlib.linear_weights([x.shape[1], width, outputs], generator=torch.Generator().manual_seed(seed))
    return [weight.to(x.device) for weight in drawn]


def condition(weights: list[Tensor], x: Float[Tensor, "n d"], slope: float) -> gnlib.ConditionNumber:
    """Return the condition number; at slope 1 that of a linear network, whose rank is smaller."""
    if slope == 1:
        return gnlib.condition_number(gnlib.linear_gauss_newton(weights, gnlib.SecondMoment.from_data(x)))
    return gnlib.condition_number(leaky_relu_gram(weights, x, slope), outputs=len(weights[1]))


def module_of(weights: list[Tensor], slope: float) -> nn.Sequential:
    """Return the network with these weights as a module, which can be trained."""
    layers = [nn.Linear(*weight.shape[::-1], bias=False, device=weight.device) for weight in weights]
    for layer, weight in zip(layers, weights, strict=True):
        layer.weight.data = weight.clone()
    return nn.Sequential(layers[0], nn.LeakyReLU(slope), layers[1])


def losses_of(
    weights: list[Tensor], x: Tensor, targets: Tensor, slope: float, rate: float, most: int = 600
) -> list[float]:
    """Return the losses of gradient descent until they are a twentieth of the first, or have gone off."""
    descend = partial(train, module_of(weights, slope), x.float(), targets, rate=rate)
    (start,) = descend(most=0).losses
    return descend(until=start / 20, most=most).losses

"""Networks, data and optimisers as in the public code behind figures 1 and 13 to 17 of Zhao 2024.

What the paper itself says is in its section 1 and appendix I.1. VGG5 is not in the public code: it is trained here like
the residual networks, but that its rate falls after epoch 100, as the paper says. It has one convolution in each of the
five stages that the networks have in the code which the paper names for it (jerett/PyTorch-CIFAR10, commit 2a5bd7c),
the smallest of which is VGG11: they all end with 512 features of one pixel. "VGG5, spiking" is what the literature on
networks of spikes calls by that name (Rathi, Srinivasan, Panda and Roy, ICLR 2020): three convolutions, means over
2 x 2 pixels, three linear layers, neither biases nor normalisation, and 50 million parameters.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, MultiStepLR

import gnlib
from gnbook.pruning.augmentation import shifted, zoomed
from gnbook.pruning.networks import VGG, VisionTransformer
from gnbook.shared.networks import ResidualNetwork, initialise

Sizes = dict[str, int | list[int] | list[int | str]]
FULL: Sizes = {
    "channels": 16,  # of the first stage of a residual network
    "vgg_layers": [64, "M", 128, "M", 256, "M", 512, "M", 512, "M"],
    "patch": 4,
    "token_width": 48,
    "hidden": [128, 128, 128],  # of FcNN
}


@dataclass(frozen=True)
class Recipe:
    """How a network is made, from torch's global generator, and trained.

    The rate is a tenth after the epoch `dropped`. Images of a batch are augmented, with a generator, and then scaled,
    given all images.
    """

    network: Callable[[], nn.Module]
    optimizer: Callable[..., torch.optim.Optimizer]
    rate: float
    dropped: int | None
    augment: Callable[[Tensor, Generator], Tensor] | None
    scale: Callable[[Tensor, Tensor], Tensor]

    def steps(self, parameters: Iterable[Tensor], factor: float = 1.0) -> tuple[torch.optim.Optimizer, LRScheduler]:
        """Return the optimiser and the schedule, with this factor to the rate."""
        optimizer = self.optimizer(parameters, lr=factor * self.rate)
        return optimizer, MultiStepLR(optimizer, [self.dropped] if self.dropped else [], gamma=0.1)


def recipe(name: str, side: int = 32, sizes: Sizes = FULL) -> Recipe:
    """Return how the public code makes and trains ResNet20, ResNet32, VGG5, "VGG5, spiking", ViT or FcNN."""
    width = sizes["token_width"]
    momentum = partial(torch.optim.SGD, momentum=0.9, weight_decay=1e-4)
    adam = partial(torch.optim.AdamW, weight_decay=1e-2)
    residual = partial(ResidualNetwork, width=sizes["channels"])
    transformer = partial(_transformer, side, sizes["patch"], width, hidden=4 * width)
    connected = partial(_fully_connected, [3 * side**2, *sizes["hidden"], 10])
    return {
        "ResNet20": Recipe(partial(residual, 3), momentum, 0.1, 91, shifted, standardised),
        "ResNet32": Recipe(partial(residual, 5), momentum, 0.1, 91, shifted, standardised),
        "VGG5": Recipe(partial(VGG, sizes["vgg_layers"], side), momentum, 0.1, 100, shifted, standardised),
        "VGG5, spiking": Recipe(partial(_spiking, side), momentum, 0.1, 100, shifted, standardised),
        "ViT": Recipe(transformer, adam, 1e-2, None, zoomed, from_minus_one_to_one),
        "FcNN": Recipe(connected, torch.optim.SGD, 1e-2, None, None, standardised),
    }[name]


def images(
    n: int, stride: int = 1, order: str = "random", device: str = "cpu"
) -> tuple[Float[Tensor, "n 3 s s"], Int[Tensor, " n"]]:
    """Return images of CIFAR-10 in single precision, from 0 to 1, and their labels.

    They are the first n of a "random" permutation of all 50,000, or in the "balanced" order of :func:`gnlib.data.load`.
    """
    if order == "balanced":
        x, labels = gnlib.load("cifar10", n, stride=stride)
        x = x.unflatten(1, (3, -(-32 // stride), -1))
    else:
        from gnlib.data import training_set

        pixels, classes = training_set("cifar10")
        some = torch.randperm(len(pixels), generator=Generator().manual_seed(0))[:n].numpy()
        x, labels = torch.from_numpy(pixels[some][:, :, ::stride, ::stride] / 255), torch.from_numpy(classes[some])
    return x.float().to(device), labels.long().to(device)


def standardised(x: Float[Tensor, "n c s s"], of: Float[Tensor, "m c s s"]) -> Float[Tensor, "n c s s"]:
    """Return images less the mean of each channel of others, over its standard deviation."""
    return (x - of.mean((0, 2, 3), keepdim=True)) / of.std((0, 2, 3), keepdim=True)


def from_minus_one_to_one(x: Float[Tensor, "n c s s"], of: Float[Tensor, "m c s s"]) -> Float[Tensor, "n c s s"]:
    """Return images from -1 to 1 in place of 0 to 1, whatever the others are."""
    return 2 * x - 1


def _fully_connected(widths: list[int]) -> nn.Module:
    """Linear layers with ReLUs between them; weights Kaiming normal, biases as torch draws them."""
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        nn.init.kaiming_normal_(layers[-2].weight)
    return nn.Sequential(*layers[:-1])


def _spiking(side: int, channels: int = 64, hidden: int = 4096) -> nn.Module:
    """Three convolutions with means over 2 x 2 pixels, and three linear layers, without biases."""
    convolution = partial(nn.Conv2d, kernel_size=3, padding=1, bias=False)
    mean, linear = partial(nn.AvgPool2d, 2), partial(nn.Linear, bias=False)
    first = convolution(3, channels), nn.ReLU(), mean()
    second = convolution(channels, 2 * channels), nn.ReLU(), convolution(2 * channels, 2 * channels), nn.ReLU(), mean()
    features = 2 * channels * (side // 4) ** 2
    last = linear(features, hidden), nn.ReLU(), linear(hidden, hidden), nn.ReLU(), linear(hidden, 10)
    return nn.Sequential(*first, *second, nn.Flatten(), *last)


def _transformer(side: int, patch: int, width: int, *, hidden: int) -> nn.Module:
    """A vision transformer whose weights, token and positions are normal with deviation 0.02, and its biases zero."""
    network = initialise(VisionTransformer(side, patch, width, hidden=hidden), _small)
    _small(network.token)
    _small(network.position)
    return network


def _small(weight: Tensor, generator: Generator | None = None) -> Tensor:
    return nn.init.normal_(weight, std=0.02, generator=generator)

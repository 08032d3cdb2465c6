"""Twelve families of small networks for colour images of 16 x 16 pixels, and six ways to initialise them."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

import gnlib
from gnbook.shared.networks import (
    Attention,
    Fill,
    PatchTransformer,
    cnn,
    drawn,
    initialise,
    kaiming,
    orthogonal,
    perceptron,
)

SIDE, CLASSES = 16, 10
UNEVEN = 3.0  # the gains of layers lie between a third of Kaiming's and three times as much

Norm = Callable[[int], nn.Module]


def colour_images(n: int, first: int = 0) -> tuple[Float[Tensor, "n 3 side side"], Int[Tensor, " n"]]:
    """Return n images of CIFAR-10 at half the resolution, each colour standardised, and their labels."""
    images, labels = (part[first:] for part in gnlib.load("cifar10", first + n, stride=32 // SIDE))
    images = images.view(n, 3, SIDE, SIDE)
    return (images - images.mean((0, 2, 3), keepdim=True)) / images.std((0, 2, 3), keepdim=True), labels


class Branch(nn.Module):
    """A block of a residual network, the sum of its input and of a branch, perhaps times a learned factor (SkipInit).

    S. De, S. L. Smith (2020), Batch normalization biases residual blocks towards the identity function in deep
    networks, NeurIPS 33.
    """

    def __init__(self, branch: nn.Module, factor: float | None = None) -> None:
        super().__init__()
        self.branch = branch
        self.factor = None if factor is None else nn.Parameter(torch.tensor(factor))

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return what leaves the block."""
        return x + (self.branch(x) if self.factor is None else self.factor * self.branch(x))


def transformer(*, norm: bool = True, width: int = 16) -> nn.Module:
    """Return two blocks of attention and a hidden layer on patches of 4 x 4 pixels, and a layer of the mean token."""

    def branches() -> tuple[list[nn.Module], ...]:
        hidden = [nn.Linear(width, 2 * width), nn.GELU(approximate="tanh"), nn.Linear(2 * width, width)]
        return [Attention(width, 4)], hidden

    def blocks() -> nn.Module:
        layers = [layers for _ in range(2) for layers in branches()]
        first = [nn.LayerNorm(width) if norm else nn.Identity() for _ in layers]
        return nn.Sequential(*(Branch(nn.Sequential(n, *b)) for n, b in zip(first, layers, strict=True)))

    return PatchTransformer(blocks, width=width, side=SIDE, outputs=CLASSES)


def fully_connected(*hidden: int, activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Module:
    """Return a perceptron with these hidden layers."""
    return perceptron(3 * SIDE**2, *hidden, CLASSES, activation=activation)


convolutional = partial(cnn, 8, 16, 32, side=SIDE)
"""Three convolutions with strides of two, each perhaps normalised, and a linear layer of all pixels."""


def residual(norm: Norm | None = None, factor: float | None = None, width: int = 8) -> nn.Module:
    """Return a residual network of two blocks with two convolutions each, perhaps normalised, perhaps with a factor."""

    def convolution() -> list[nn.Module]:
        return [*([norm(width)] if norm else []), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1)]

    blocks = [Branch(nn.Sequential(*convolution(), *convolution()), factor) for _ in range(2)]
    ends = nn.Conv2d(3, width, 4, 4), nn.Linear(4 * width, CLASSES)
    return nn.Sequential(ends[0], *blocks, nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), ends[1])


def group_norm(channels: int, eps: float = 1e-5) -> nn.Module:
    """Return a normalisation of groups of channels, of each sample by itself."""
    return nn.GroupNorm(4, channels, eps)


def batch_norm(channels: int, eps: float = 1e-5) -> nn.Module:
    """Return a normalisation by the statistics of the batch, in training and beyond."""
    return nn.BatchNorm2d(channels, eps, track_running_stats=False)


FAMILIES: dict[str, Callable[[], nn.Module]] = {
    "MLP, ReLU": lambda: fully_connected(32, 32),
    "MLP, tanh": lambda: fully_connected(32, 32, activation=nn.Tanh),
    "wide and shallow": lambda: fully_connected(64),
    "CNN": convolutional,
    "CNN, GroupNorm": lambda: convolutional(norm=group_norm),
    "ResNet": residual,
    "ResNet, GroupNorm": lambda: residual(group_norm),
    "ViT": transformer,
    "deep and narrow": lambda: fully_connected(*[16] * 8),
    "CNN, BatchNorm": lambda: convolutional(norm=batch_norm),
    "ResNet, SkipInit": lambda: residual(factor=0.1),
    "ViT, no LayerNorm": lambda: transformer(norm=False),
}
"""Constructors of the families, initialised by torch from its global generator."""


def uneven(weight: Tensor, generator: Generator | None = None) -> Tensor:
    """Fill a weight tensor as Kaiming, times a gain from a third to three, uniform on a logarithmic scale."""
    exponent = 2 * torch.rand((), generator=generator).item() - 1
    return kaiming(weight, generator, scale=UNEVEN**exponent)


INITIALISATIONS: dict[str, Fill | None] = {
    "default": None,
    "Kaiming": kaiming,
    "half": partial(kaiming, scale=0.5),
    "double": partial(kaiming, scale=2.0),
    "orthogonal": orthogonal,
    "uneven": uneven,
}
"""The filling of weights, beside biases of zero; None leaves all to torch."""


def build(family: str, initialisation: str, *, seed: int) -> nn.Module:
    """Return a network of a family in double precision; torch's global generator is left as it is."""
    network, fill = drawn(FAMILIES[family], seed).double(), INITIALISATIONS[initialisation]
    return initialise(network, fill, generator=torch.Generator().manual_seed(seed)) if fill else network

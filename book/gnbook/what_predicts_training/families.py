"""Twelve families of small networks for colour images of 16 x 16 pixels, and six ways to initialise them."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor, nn

import gnlib
from gnbook.shared.attention import Attention

SIDE, CLASSES = 16, 10
SQRT_2 = math.sqrt(2)
UNEVEN = 3.0  # the gains of layers lie between a third of Kaiming's and three times as much

Norm = Callable[[int], nn.Module]


def colour_images(n: int) -> tuple[Float[Tensor, "n 3 side side"], Int[Tensor, " n"]]:
    """Return the first n images of CIFAR-10 at half the resolution, each colour standardised, and their labels."""
    images, labels = gnlib.load("cifar10", n, stride=32 // SIDE)
    images = images.view(n, 3, SIDE, SIDE)
    return (images - images.mean((0, 2, 3), keepdim=True)) / images.std((0, 2, 3), keepdim=True), labels


class Branch(nn.Module):
    """A block of a residual network, the sum of its input and of a branch, which a factor may scale.

    Parameters
    ----------
    branch
        from a tensor to one of the same shape
    factor
        what a learned factor of the branch begins at; there is none if it is not given

    References
    ----------
    S. De, S. L. Smith (2020), Batch normalization biases residual blocks towards the identity function in deep
    networks, NeurIPS 33 (SkipInit, with a factor that begins at 0).
    """

    def __init__(self, branch: nn.Module, factor: float | None = None) -> None:
        super().__init__()
        self.branch = branch
        self.factor = None if factor is None else nn.Parameter(torch.tensor(factor))

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return what leaves the block."""
        return x + (self.branch(x) if self.factor is None else self.factor * self.branch(x))


class VisionTransformer(nn.Module):
    """Patches of 4 x 4 pixels as tokens, two blocks of attention and a hidden layer, a linear layer of the mean token.

    Parameters
    ----------
    norm
        whether there is a LayerNorm before each branch
    width
        of a token

    References
    ----------
    A. Dosovitskiy et al. (2021), An image is worth 16x16 words, ICLR.
    """

    def __init__(self, *, norm: bool = True, width: int = 16) -> None:
        super().__init__()

        def branches() -> tuple[list[nn.Module], ...]:
            hidden = [nn.Linear(width, 2 * width), nn.GELU(approximate="tanh"), nn.Linear(2 * width, width)]
            return [Attention(width, 4)], hidden

        self.embedding = nn.Conv2d(3, width, 4, 4)
        self.position = nn.Parameter(0.02 * torch.randn((SIDE // 4) ** 2, width))
        layers = [layers for _ in range(2) for layers in branches()]
        first = [nn.LayerNorm(width) if norm else nn.Identity() for _ in layers]
        self.blocks = nn.Sequential(*(Branch(nn.Sequential(n, *b)) for n, b in zip(first, layers, strict=True)))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Float[Tensor, "n 3 side side"]) -> Float[Tensor, "n k"]:
        """Return the outputs."""
        tokens = self.embedding(x).flatten(2).mT + self.position
        return self.head(self.blocks(tokens).mean(1))


def fully_connected(*widths: int, activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Module:
    """Return a network of linear layers with these hidden widths."""
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in zip((3 * SIDE**2, *widths), widths, strict=False):
        layers += [nn.Linear(before, after), activation()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], CLASSES))


def convolutional(norm: Norm | None = None) -> nn.Module:
    """Return three convolutions with strides of two, each perhaps normalised, and a linear layer."""
    layers: list[nn.Module] = []
    for before, after in ((3, 8), (8, 16), (16, 32)):
        layers += [nn.Conv2d(before, after, 3, 2, 1), *([norm(after)] if norm else []), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128, CLASSES))


def residual(norm: Norm | None = None, factor: float | None = None, width: int = 8) -> nn.Module:
    """Return a residual network of two blocks with two convolutions each, perhaps normalised, perhaps with a factor."""

    def convolution() -> list[nn.Module]:
        return [*([norm(width)] if norm else []), nn.ReLU(), nn.Conv2d(width, width, 3, 1, 1)]

    blocks = [Branch(nn.Sequential(*convolution(), *convolution()), factor) for _ in range(2)]
    ends = nn.Conv2d(3, width, 4, 4), nn.Linear(4 * width, CLASSES)
    return nn.Sequential(ends[0], *blocks, nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), ends[1])


def group_norm(channels: int) -> nn.Module:
    """Return a normalisation of groups of channels, of each sample by itself."""
    return nn.GroupNorm(4, channels)


def batch_norm(channels: int) -> nn.Module:
    """Return a normalisation by the statistics of the batch, in training and beyond."""
    return nn.BatchNorm2d(channels, track_running_stats=False)


FAMILIES: dict[str, Callable[[], nn.Module]] = {
    "MLP, ReLU": lambda: fully_connected(32, 32),
    "MLP, tanh": lambda: fully_connected(32, 32, activation=nn.Tanh),
    "wide and shallow": lambda: fully_connected(64),
    "CNN": convolutional,
    "CNN, GroupNorm": lambda: convolutional(group_norm),
    "ResNet": residual,
    "ResNet, GroupNorm": lambda: residual(group_norm),
    "ViT": VisionTransformer,
    "deep and narrow": lambda: fully_connected(*[16] * 8),
    "CNN, BatchNorm": lambda: convolutional(batch_norm),
    "ResNet, SkipInit": lambda: residual(factor=0.1),
    "ViT, no LayerNorm": lambda: VisionTransformer(norm=False),
}
"""What makes a network of each family, initialised by torch from its global generator."""

HELD_OUT = ("deep and narrow", "CNN, BatchNorm", "ResNet, SkipInit", "ViT, no LayerNorm")
"""The families that nobody looked at before the trial."""


def _kaiming(gain: float) -> Callable[[Tensor, Generator], None]:
    def fill(weight: Tensor, generator: Generator) -> None:
        nn.init.kaiming_normal_(weight, generator=generator).mul_(gain)

    return fill


def _orthogonal(weight: Tensor, generator: Generator) -> None:
    nn.init.orthogonal_(weight, SQRT_2, generator)


def _uneven(weight: Tensor, generator: Generator) -> None:
    exponent = 2 * torch.rand((), generator=generator).item() - 1
    nn.init.kaiming_normal_(weight, generator=generator).mul_(UNEVEN**exponent)


INITIALISATIONS: dict[str, Callable[[Tensor, Generator], None] | None] = {
    "default": None,
    "Kaiming": _kaiming(1.0),
    "half": _kaiming(0.5),
    "double": _kaiming(2.0),
    "orthogonal": _orthogonal,
    "uneven": _uneven,
}
"""What fills the weights of a linear layer or a convolution; None leaves all to torch.

Kaiming's normal one for ReLUs, that one by half and by two, orthogonal with the same gain, and Kaiming's with a gain of
its own for each layer, from a third to three. Biases are then zero; what normalises is left as it is.
"""


@torch.no_grad()
def build(family: str, initialisation: str, *, seed: int) -> nn.Module:
    """Return a network of a family in double precision.

    Parameters
    ----------
    family, initialisation
        names from `FAMILIES` and `INITIALISATIONS`
    seed
        of all that is drawn; torch's global generator is left as it is

    Raises
    ------
    ValueError
        Another name.

    Examples
    --------
    >>> network = build("CNN", "Kaiming", seed=0)
    >>> network(torch.zeros(1, 3, 16, 16, dtype=torch.float64)).shape, sum(p.numel() for p in network.parameters())
    (torch.Size([1, 10]), 7322)
    """
    for what, name, known in (("family", family, FAMILIES), ("initialisation", initialisation, INITIALISATIONS)):
        if name not in known:
            raise ValueError(f"{what} is {name!r}; one of {'; '.join(known)} was expected.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = FAMILIES[family]().double()
    fill, generator = INITIALISATIONS[initialisation], torch.Generator().manual_seed(seed)
    for layer in network.modules():
        if fill and isinstance(layer, nn.Linear | nn.Conv2d):
            fill(layer.weight, generator)
            layer.bias.zero_()
    return network

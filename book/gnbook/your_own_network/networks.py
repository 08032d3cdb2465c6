"""A perceptron, a convolutional network and a transformer for small images, and six ways to draw their weights."""

import math
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

OUTPUTS = 10
Initialisation = Callable[[Tensor], object]


def perceptron(depth: int, width: int, side: int = 16, seed: int = 0) -> nn.Sequential:
    """Return a network of so many hidden layers of ReLUs, drawn with a seed, for images of so many rows and columns.

    Examples
    --------
    >>> len(perceptron(2, 128))
    6
    """
    torch.manual_seed(seed)
    widths = [3 * side**2, *[width] * depth]
    hidden = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(width, OUTPUTS))


def cnn(norm: Callable[[int], nn.Module] = nn.Identity, channels: Iterable[int] = (16, 32, 64)) -> nn.Sequential:
    """Return convolutions with stride 2, each with normalisation and ReLU, and a linear layer of the mean pixel.

    Examples
    --------
    >>> sum(parameter.numel() for parameter in cnn(group_norm).parameters())
    24458
    """
    layers: list[nn.Module] = []
    before = 3
    for after in channels:
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), norm(after), nn.ReLU()]
        before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, OUTPUTS))


group_norm = partial(nn.GroupNorm, 4)
"""Normalisation over four groups of channels."""


class Block(nn.Module):
    """Attention and a two-layer network, each with a skip; LayerNorm before each (pre) or after each (post)."""

    def __init__(self, width: int, pre: bool, heads: int = 4, dropout: float = 0.1) -> None:
        super().__init__()
        self.pre = pre
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attention = nn.MultiheadAttention(width, heads, dropout, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(2 * width, width)
        )

    def forward(self, tokens: Float[Tensor, "n t width"]) -> Float[Tensor, "n t width"]:
        """Return the tokens, changed."""

        def attend(tokens: Tensor) -> Tensor:
            attended: Tensor = self.attention(tokens, tokens, tokens, need_weights=False)[0]
            return attended

        for norm, branch in zip(self.norms, (attend, self.mlp), strict=True):
            tokens = tokens + branch(norm(tokens)) if self.pre else norm(tokens + branch(tokens))
        return tokens


class Transformer(nn.Module):
    """A vision transformer: 16 patches, two blocks, the mean of the tokens, a linear head.

    Examples
    --------
    >>> sum(parameter.numel() for parameter in Transformer().parameters())
    19562
    """

    def __init__(self, pre: bool = True, width: int = 32, side: int = 16) -> None:
        super().__init__()
        patch = side // 4
        self.embedding = nn.Conv2d(3, width, patch, stride=patch)
        self.position = nn.Parameter(0.02 * torch.randn(16, width))
        self.blocks = nn.Sequential(Block(width, pre), Block(width, pre))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, OUTPUTS)

    def forward(self, images: Float[Tensor, "n 3 side side"]) -> Float[Tensor, "n 10"]:
        """Return the outputs."""
        tokens = self.embedding(images).flatten(2).mT + self.position
        outputs: Tensor = self.head(self.norm(self.blocks(tokens)).mean(1))
        return outputs


kaiming = partial(nn.init.kaiming_normal_, nonlinearity="relu")

INITIALISATIONS: dict[str, Initialisation | None] = {
    "torch default": None,
    "Xavier normal": nn.init.xavier_normal_,
    "Kaiming normal": kaiming,
    "Kaiming / 4": lambda weight: kaiming(weight).div_(4),
    "Kaiming x 4": lambda weight: kaiming(weight).mul_(4),
    "orthogonal": partial(nn.init.orthogonal_, gain=math.sqrt(2)),
}
"""What is done with each matrix of weights; biases are then zero, but for torch's default, which is left as it is."""


@torch.no_grad()
def initialised(make: Callable[[], nn.Module], initialise: Initialisation | None, seed: int) -> nn.Module:
    """Return a network drawn with this seed. Torch draws in constructors, from its global generator."""
    torch.manual_seed(seed)
    net = make()
    for name, parameter in net.named_parameters():
        if initialise and name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif initialise and parameter.ndim > 1 and name != "position":
            initialise(parameter)
    return net

"""A perceptron, a convolutional network and a transformer for small images, and six ways to draw their weights."""

from collections.abc import Callable, Iterable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnbook.shared import networks
from gnbook.shared.networks import Fill, PatchTransformer, initialise, kaiming, orthogonal

OUTPUTS = 10


def perceptron(depth: int, width: int, side: int = 16, seed: int = 0) -> nn.Sequential:
    """Return a network of so many hidden layers of ReLUs, drawn with a seed, for images of so many rows and columns.

    >>> len(perceptron(2, 128))
    6
    """
    torch.manual_seed(seed)
    return networks.perceptron(3 * side**2, *[width] * depth, OUTPUTS)


def cnn(norm: Callable[[int], nn.Module] = nn.Identity, channels: Iterable[int] = (16, 32, 64)) -> nn.Sequential:
    """Return convolutions with stride 2, each with normalisation and ReLU, and a linear layer of the mean pixel.

    >>> sum(parameter.numel() for parameter in cnn(group_norm).parameters())
    24458
    """
    return networks.cnn(*channels, norm=norm, outputs=OUTPUTS)


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
        """Return the tokens after the block."""

        def attend(tokens: Tensor) -> Tensor:
            attended: Tensor = self.attention(tokens, tokens, tokens, need_weights=False)[0]
            return attended

        for norm, branch in zip(self.norms, (attend, self.mlp), strict=True):
            tokens = tokens + branch(norm(tokens)) if self.pre else norm(tokens + branch(tokens))
        return tokens


class Transformer(PatchTransformer):
    """A vision transformer: 16 patches, two blocks, the mean of the tokens, a linear head.

    >>> sum(parameter.numel() for parameter in Transformer().parameters())
    19562
    """

    def __init__(self, pre: bool = True, width: int = 32, side: int = 16) -> None:
        def blocks() -> nn.Sequential:
            return nn.Sequential(Block(width, pre), Block(width, pre))

        super().__init__(blocks, width=width, side=side, patch=side // 4, norm=True, outputs=OUTPUTS)


INITIALISATIONS: dict[str, Fill | None] = {
    "torch default": None,
    "Xavier normal": lambda weight, generator: nn.init.xavier_normal_(weight, generator=generator),
    "Kaiming normal": kaiming,
    "Kaiming / 4": partial(kaiming, scale=1 / 4),
    "Kaiming x 4": partial(kaiming, scale=4.0),
    "orthogonal": orthogonal,
}
"""The filling of each matrix of weights, beside biases of zero; None leaves weights and biases to torch."""


def initialised(make: Callable[[], nn.Module], fill: Fill | None, seed: int) -> nn.Module:
    """Return a network drawn with a seed of torch's global generator, which constructors draw from."""
    torch.manual_seed(seed)
    network = make()
    return initialise(network, fill) if fill else network


def initialisations_of(name: str) -> tuple[str, ...]:
    """Return which initialisations are trained: four of a CNN, of a transformer three."""
    four = "torch default", "Kaiming normal", "orthogonal", "Kaiming / 4"
    return four[:3] if name.startswith("transformer") else four

"""Three small networks with common ailments, and the same networks with the ailment mended."""

import torch
from torch import nn

from gnbook.shared import networks
from gnbook.shared.networks import PatchTransformer

WIDTH = 32  # of a token


def perceptron(side: int = 16, seed: int = 0, *, layer_norm: bool = False) -> nn.Sequential:
    """Return a network with two hidden layers of 128 ReLUs for images of so many rows and columns."""
    torch.manual_seed(seed)
    return networks.perceptron(3 * side**2, 128, 128, 10, norm=nn.LayerNorm if layer_norm else None)


def cnn(seed: int = 0, *, group_norm: bool = False) -> nn.Sequential:
    """Return a network of three convolutions, each of which halves the image, and a linear layer of the mean pixel."""
    torch.manual_seed(seed)
    return networks.cnn(16, 32, 64, norm=(lambda channels: nn.GroupNorm(1, channels)) if group_norm else None)


def transformer(side: int = 16, seed: int = 0, std: float | None = None) -> PatchTransformer:
    """Return a transformer of two blocks on sixteen patches of an image, drawn with a seed.

    The deviation of each weight matrix is one over the root of its number of inputs if `std` is not given.
    """

    def blocks() -> nn.Sequential:
        two = (nn.TransformerEncoderLayer(WIDTH, 4, 64, 0.0, batch_first=True, norm_first=True) for _ in range(2))
        return nn.Sequential(*two)

    torch.manual_seed(seed)
    network = PatchTransformer(blocks, width=WIDTH, side=side, patch=side // 4, position=None, norm=True)
    for weight in (p for p in network.parameters() if p.ndim > 1):
        nn.init.normal_(weight, std=std or weight[0].numel() ** -0.5)
    network.position = nn.Parameter(0.02 * torch.randn(16, WIDTH))
    return network

"""Three small networks on images of 16 x 16 pixels, and networks of the sizes that are in use."""

from itertools import pairwise

from jaxtyping import Float, Int
from torch import Tensor, nn


def perceptron(width: int) -> nn.Sequential:
    """Return a network of two hidden layers of ReLUs, each of so many units, with ten outputs.

    Examples
    --------
    >>> count(perceptron(1024))
    1847306
    """
    hidden = nn.Linear(768, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(width, 10))


def cnn() -> nn.Sequential:
    """Return a network of three convolutions, each of which halves the image, with ten outputs.

    Examples
    --------
    >>> count(cnn())
    167690
    """
    widths = (3, 16, 64, 256)
    layers = [layer for a, b in pairwise(widths) for layer in (nn.Conv2d(a, b, 3, 2, 1), nn.ReLU())]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, 10))


class PatchTransformer(nn.Module):
    """Patches of 4 x 4 pixels as tokens, two layers of attention, a linear layer of the mean token.

    Examples
    --------
    >>> count(PatchTransformer(64))
    70730
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Conv2d(3, width, 4, 4)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n 10"]:
        """Return the outputs."""
        return self.head(self.blocks(self.embedding(x).flatten(2).mT).mean(1))


def count(network: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(weight.numel() for weight in network.parameters())


class ResNet(nn.Module):
    """The residual networks for large images of He et al. (2016), as torchvision has them.

    Parameters
    ----------
    blocks
        in each of the four stages: 2, 2, 2, 2 for ResNet18 and 3, 4, 6, 3 for ResNet-50
    bottleneck
        whether a block has three convolutions, the first and the last of them with filters of one pixel, or two
    outputs
        number of outputs

    Examples
    --------
    >>> networks = ResNet([2, 2, 2, 2], outputs=1000), ResNet([3, 4, 6, 3], bottleneck=True, outputs=1000)
    >>> [f"{count(network):,}" for network in networks]
    ['11,689,512', '25,557,032']
    """

    def __init__(self, blocks: list[int], *, bottleneck: bool = False, outputs: int = 10) -> None:
        super().__init__()
        layers, channels = [*_normalised(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
        for stage, number in enumerate(blocks):
            for block in range(number):
                layers.append(_Block(channels, 64 * 2**stage, 2 if stage and not block else 1, bottleneck=bottleneck))
                channels = layers[-1].channels
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, outputs))

    def forward(self, x: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n k"]:
        """Return the outputs."""
        return self.layers(x)


class _Block(nn.Module):
    """Convolutions beside a skip, and a ReLU of their sum."""

    def __init__(self, channels: int, width: int, stride: int, *, bottleneck: bool) -> None:
        super().__init__()
        self.channels = 4 * width if bottleneck else width
        sizes, strides = ((1, 3, 1), (1, stride, 1)) if bottleneck else ((3, 3), (stride, 1))
        widths = [channels, *[width] * (len(sizes) - 1), self.channels]
        layers: list[nn.Module] = []
        for (a, b), size, step in zip(pairwise(widths), sizes, strides, strict=True):
            layers += [*_normalised(a, b, size, step), nn.ReLU()]
        self.branch = nn.Sequential(*layers[:-1])
        same = stride == 1 and channels == self.channels
        self.skip = nn.Identity() if same else nn.Sequential(*_normalised(channels, self.channels, 1, stride))

    def forward(self, x: Float[Tensor, "n channels h w"]) -> Float[Tensor, "n out h2 w2"]:
        """Return the outputs."""
        return (self.branch(x) + self.skip(x)).relu()


class TextTransformer(nn.Module):
    """Words as tokens, layers of attention, and a linear layer of the mean token.

    Parameters
    ----------
    words
        number of different ones
    width
        of a token; the hidden layers have four times as many units, and there is a head for each 64
    layers
        number of layers
    outputs
        number of outputs
    """

    def __init__(self, words: int = 20_000, width: int = 768, layers: int = 12, outputs: int = 10) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, 0, nn.functional.gelu, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Int[Tensor, "n t"]) -> Float[Tensor, "n k"]:
        """Return the outputs."""
        return self.head(self.layers(self.embedding(x)).mean(1))


def _normalised(channels: int, out: int, size: int, stride: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(channels, out, size, stride, size // 2, bias=False), nn.BatchNorm2d(out)

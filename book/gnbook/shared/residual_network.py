"""Residual networks for small images."""

from jaxtyping import Float
from torch import Tensor, nn


class ResidualNetwork(nn.Module):
    """A convolution, three stages of residual blocks, the mean over the image and a linear layer.

    With three blocks a stage it is the ResNet20 of He et al. (2016, section 4.2), with five the ResNet32. A block has
    two convolutions, each followed by batch normalisation; the second and the third stage begin by halving the image
    and doubling the channels. There the skip is a convolution with filters of one pixel and batch normalisation (option
    B; option A, which pads with zeros, has no weights there). Torch's default initialisation, from its global
    generator.

    Parameters
    ----------
    blocks
        in each stage; the network has `6 blocks + 2` layers, skips not counted
    width
        channels of the first stage
    outputs
        number of outputs

    Raises
    ------
    ValueError
        A number below 1.
    """

    def __init__(self, blocks: int = 3, width: int = 16, outputs: int = 10) -> None:
        if min(blocks, width, outputs) < 1:
            raise ValueError(
                f"blocks is {blocks}, width is {width} and outputs is {outputs}; numbers from 1 on were expected."
            )
        layers, channels = [*_normalised(3, width, 3, 1), nn.ReLU()], width
        for stage in range(3):
            for block in range(blocks):
                out, stride = width * 2**stage, 2 if stage and not block else 1
                layers.append(ResidualBlock(channels, out, stride))
                channels = out
        super().__init__()
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, outputs))

    def forward(self, x: Float[Tensor, "n 3 side side"]) -> Float[Tensor, "n k"]:
        """Return the outputs."""
        return self.layers(x)


class ResidualBlock(nn.Module):
    """Two convolutions beside a skip, and a ReLU of their sum; `stride` 2 halves the image."""

    def __init__(self, channels: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.branch = nn.Sequential(*_normalised(channels, out, 3, stride), nn.ReLU(), *_normalised(out, out, 3, 1))
        same = stride == 1 and channels == out
        self.skip = nn.Identity() if same else nn.Sequential(*_normalised(channels, out, 1, stride))

    def forward(self, x: Float[Tensor, "n channels h w"]) -> Float[Tensor, "n out h2 w2"]:
        """Return the outputs."""
        return (self.branch(x) + self.skip(x)).relu()


def _normalised(channels: int, out: int, size: int, stride: int) -> tuple[nn.Module, ...]:
    return nn.Conv2d(channels, out, size, stride, size // 2, bias=False), nn.BatchNorm2d(out)

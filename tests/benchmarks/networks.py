"""Networks whose Gram matrices are raced, written plainly, with torch's default initialisation."""

from functools import partial
from itertools import pairwise

import torch
from torch import nn


def mlp(*widths):
    """Return linear layers with biases and ReLU between them, in double precision."""
    torch.manual_seed(0)
    layers = [layer for d, m in pairwise(widths) for layer in (nn.Linear(d, m, dtype=torch.float64), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def cnn(*channels, outputs=10):
    """Return convolutions of 3 x 3 pixels with stride 2, biases and ReLU, a mean over pixels and a linear layer."""
    torch.manual_seed(0)
    pairs = pairwise((3, *channels))
    layers = [layer for c, out in pairs for layer in (nn.Conv2d(c, out, 3, 2, 1), nn.ReLU())]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels[-1], outputs))


def resnet(blocks=3, width=16, outputs=10, norm=nn.BatchNorm2d):
    """Return the ResNet20 for CIFAR-10, 270 thousand parameters, or one of other sizes, in evaluation mode."""
    torch.manual_seed(0)
    first = [nn.Conv2d(3, width, 3, 1, 1, bias=False), norm(width), nn.ReLU()]
    return _residual(first, [width, 2 * width, 4 * width], blocks, outputs, partial(Block, norm=norm, skip=Padded))


def resnet18(outputs=10, width=64):
    """Return the ResNet18 that torchvision has, 11 million parameters, in evaluation mode."""
    torch.manual_seed(0)
    first = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    widths = [width * 2**stage for stage in range(4)]
    return _residual(
        [*first, nn.MaxPool2d(3, 2, 1)], widths, 2, outputs, partial(Block, norm=nn.BatchNorm2d, skip=_convolved)
    )


def _residual(layers, widths, blocks, outputs, block):
    """Return these layers, stages of residual blocks, each of which strides but the first, and a linear layer."""
    channels = widths[0]
    for out in widths:
        for number in range(blocks):
            layers = [*layers, block(channels, out, 2 if out > channels and not number else 1)]
            channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, outputs)).eval()


class Block(nn.Module):
    """Two convolutions beside a skip (He et al. 2016)."""

    def __init__(self, channels, out, stride, norm, skip):
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, 1, bias=False),
            norm(out),
            nn.ReLU(inplace=True),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            norm(out),
        )
        self.skip = nn.Identity() if channels == out else skip(channels, out, stride)

    def forward(self, x):
        return torch.relu_(self.branch(x) + self.skip(x))


def _convolved(channels, out, stride):
    """Return the skip that is a convolution of one pixel."""
    return nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))


class Padded(nn.Module):
    """The skip that strides, and pads the channels with zeros."""

    def __init__(self, channels, out, stride):
        super().__init__()
        self.stride, self.new = stride, out - channels

    def forward(self, x):
        padding = self.new // 2, self.new - self.new // 2
        return nn.functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, *padding))

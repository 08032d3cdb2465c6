"""Networks whose Gram matrices are raced, written plainly, with torch's default initialisation."""

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


class BasicBlock(nn.Module):
    """Two convolutions and a skip, which is a convolution of one pixel where the shape changes."""

    def __init__(self, channels, out, stride):
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(inplace=True),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.skip = nn.Sequential()
        if stride > 1 or channels != out:
            self.skip = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return torch.relu_(self.branch(x) + self.skip(x))


def resnet18(outputs=10, width=64):
    """Return the ResNet18 that torchvision has, 11 million parameters (He et al. 2016), in evaluation mode."""
    torch.manual_seed(0)
    first = nn.Conv2d(3, width, 7, 2, 3, bias=False)
    layers = [first, nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = width
    for stage in range(4):
        out = width * 2**stage
        layers += [BasicBlock(channels, out, 2 if stage else 1), BasicBlock(out, out, 1)]
        channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, outputs)).eval()

"""Eight families of small networks that are homogeneous in the weights of each layer, for images of 16 x 16 pixels."""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn

SIDE, CLASSES = 16, 10
EPSILON = 1e-10  # of what normalises: with zero, a normalised layer would be homogeneous to the last digit

Norm = Callable[[int], nn.Module]


def perceptron(*widths: int, activation: Callable[[], nn.Module] = nn.ReLU) -> nn.Module:
    """Return a fully connected network with these hidden widths.

    Examples
    --------
    >>> perceptron(5)(torch.zeros(1, 3, 16, 16)).shape
    torch.Size([1, 10])
    """
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise((3 * SIDE**2, *widths)):
        layers += [nn.Linear(before, after), activation()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], CLASSES))


def convolutional(*channels: int, strides: tuple[int, ...], norm: Norm | None = None) -> nn.Module:
    """Return 3 x 3 convolutions with these channels, each perhaps normalised, and a linear layer of the mean pixel.

    Examples
    --------
    >>> convolutional(4, 8, strides=(2, 2))(torch.zeros(1, 3, 16, 16)).shape
    torch.Size([1, 10])
    """
    layers: list[nn.Module] = []
    for (before, after), stride in zip(pairwise((3, *channels)), strides, strict=True):
        layers += [nn.Conv2d(before, after, 3, stride, 1), *([norm(after)] if norm else []), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * channels[-1], CLASSES))


def group_norm(channels: int) -> nn.Module:
    """Return a normalisation of groups of channels, of each sample by itself."""
    return nn.GroupNorm(4, channels, eps=EPSILON)


def batch_norm(channels: int) -> nn.Module:
    """Return a normalisation by the statistics of the batch, in training and beyond."""
    return nn.BatchNorm2d(channels, eps=EPSILON, track_running_stats=False)


def leaky() -> nn.Module:
    """Return a leaky ReLU of slope 0.1."""
    return nn.LeakyReLU(0.1)


FAMILIES: dict[str, Callable[[], nn.Module]] = {
    "MLP": lambda: perceptron(32, 32),
    "wide and shallow": lambda: perceptron(64),
    "CNN": lambda: convolutional(8, 16, 32, strides=(2, 2, 2)),
    "CNN, GroupNorm": lambda: convolutional(8, 16, 32, strides=(2, 2, 2), norm=group_norm),
    "deep and narrow": lambda: perceptron(*[16] * 8),
    "funnel, leaky ReLU": lambda: perceptron(48, 24, 12, activation=leaky),
    "deep CNN": lambda: convolutional(8, 8, 16, 16, 32, strides=(2, 1, 2, 1, 2)),
    "CNN, BatchNorm": lambda: convolutional(8, 16, 32, strides=(2, 2, 2), norm=batch_norm),
}
"""What makes a network of each family, initialised by torch from its global generator."""

HELD_OUT = ("deep and narrow", "funnel, leaky ReLU", "deep CNN", "CNN, BatchNorm")
"""The families on which nothing is decided."""


def build(family: str, *, seed: int) -> nn.Module:
    """Return a network of a family as torch initialises it, in double precision.

    Parameters
    ----------
    family
        a name from `FAMILIES`
    seed
        of all that is drawn; torch's global generator is left as it is

    Raises
    ------
    ValueError
        Another name.

    Examples
    --------
    >>> sum(p.numel() for p in build("CNN", seed=0).parameters())
    7322
    """
    if family not in FAMILIES:
        raise ValueError(f"family is {family!r}; one of {'; '.join(FAMILIES)} was expected.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return FAMILIES[family]().double()

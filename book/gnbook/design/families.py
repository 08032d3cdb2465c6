"""Eight families of small networks that are homogeneous in the weights of each layer, for images of 16 x 16 pixels."""

from collections.abc import Callable
from functools import partial

from torch import nn

from gnbook.shared.families import SIDE, batch_norm, fully_connected, group_norm
from gnbook.shared.networks import cnn, drawn

EPSILON = 1e-10  # of normalisations: with zero, a normalised layer would be homogeneous to the last digit


FAMILIES: dict[str, Callable[[], nn.Module]] = {
    "MLP": lambda: fully_connected(32, 32),
    "wide and shallow": lambda: fully_connected(64),
    "CNN": lambda: cnn(8, 16, 32, side=SIDE),
    "CNN, GroupNorm": lambda: cnn(8, 16, 32, side=SIDE, norm=partial(group_norm, eps=EPSILON)),
    "deep and narrow": lambda: fully_connected(*[16] * 8),
    "funnel, leaky ReLU": lambda: fully_connected(48, 24, 12, activation=partial(nn.LeakyReLU, 0.1)),
    "deep CNN": lambda: cnn(8, 8, 16, 16, 32, strides=(2, 1, 2, 1, 2), side=SIDE),
    "CNN, BatchNorm": lambda: cnn(8, 16, 32, side=SIDE, norm=partial(batch_norm, eps=EPSILON)),
}
"""Constructors of the families, initialised by torch from its global generator."""

HELD_OUT = ("deep and narrow", "funnel, leaky ReLU", "deep CNN", "CNN, BatchNorm")
"""The families on which nothing is decided."""


def build(family: str, *, seed: int) -> nn.Module:
    """Return a network of a family as torch initialises it, in double precision; torch's generator is left alone."""
    return drawn(FAMILIES[family], seed).double()

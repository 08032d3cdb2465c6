"""The families of the trial, and those of them that nobody looked at before it."""

from gnbook.shared.families import FAMILIES as FAMILIES
from gnbook.shared.families import INITIALISATIONS as INITIALISATIONS
from gnbook.shared.families import build as build
from gnbook.shared.families import colour_images as colour_images

HELD_OUT = ("deep and narrow", "CNN, BatchNorm", "ResNet, SkipInit", "ViT, no LayerNorm")
"""The families that nobody looked at before the trial."""

"""Matrices whose entries are so small or large that their squares would leave the range of double precision."""

import math

import torch
from torch import Tensor

USUAL = 1e60


def magnitude(matrix: Tensor) -> float:
    """Return a power of two to divide a matrix by that brings its entries to the order of one; 1 for usual ones."""
    largest = torch.stack(torch.aminmax(matrix)).abs().max().item()
    return 1.0 if 1 / USUAL < largest < USUAL else 2.0 ** math.frexp(largest)[1]

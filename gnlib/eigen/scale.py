"""Powers of two that give a matrix a usual size, and its eigenvalues their own again: neither of them rounds.

Squares of entries far from 1 leave the range of double precision, and a residual that is lost that way looks like none.
"""

import math
import sys

import torch
from torch import Tensor

from gnlib.refused import Refused

USUAL = 1e60  # entries up to this, and down to its inverse, have squares and fourth powers within the range
LEAST = sys.float_info.min  # numbers below it have fewer digits


def size_of(tensor: Tensor) -> float:
    """Return the size of the largest entry."""
    return torch.stack(torch.aminmax(tensor)).abs().max().item()


def exponent_of(size: float) -> int:
    """Return the exponent of the power of two that brings a number to between 1/2 and 1; 0 for a usual number."""
    return 0 if size == 0 or 1 / USUAL < size < USUAL else math.frexp(size)[1]


def times_power(tensor: Tensor, exponent: int) -> Tensor:
    """Return a tensor times a power of two, and itself if that is 1."""
    half = exponent // 2  # as the power itself may be out of range
    return tensor * 2.0**half * 2.0 ** (exponent - half) if exponent else tensor


def scaled(tensor: Tensor) -> tuple[Tensor, int]:
    """Return a tensor of usual size, and the exponent of the power of two by which it was divided."""
    exponent = exponent_of(size_of(tensor))
    return times_power(tensor, -exponent), exponent


def restored(value: float, exponent: int, what: str = "eigenvalue of the matrix") -> float:
    """Return a value times a power of two, or refuse one that double precision has no digits for."""
    try:
        result = math.ldexp(value, exponent)
    except OverflowError:
        result = math.inf
    if value and not LEAST <= abs(result) < math.inf:
        size = math.log10(abs(value)) + exponent * math.log10(2)
        remedy = "multiply the matrix, the outputs of the network, or the data by a power of two."
        found = f"An {what} is about 1e{size:+.0f}, and double precision holds numbers from 2e-308 to 2e+308"
        raise Refused("out-of-range", f"{found}; {remedy}")
    return result


def all_restored(tensor: Tensor, exponent: int, what: str) -> Tensor:
    """Return a tensor times a power of two, or refuse one whose largest entry double precision has no digits for."""
    if exponent:
        restored(size_of(tensor), exponent, what)
    return times_power(tensor, exponent)

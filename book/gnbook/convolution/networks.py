"""Linear convolutional networks in one and two dimensions, and the Toeplitz matrices of their layers."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from numbers import Integral
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from gnlib.checks import as_float64

Option = int | Sequence[int]  # one for all layers, or one for each


class Convolution(NamedTuple):
    """A layer without bias, as `conv1d` and `conv2d` of torch have it, and the positions along each axis."""

    filters: Float[Tensor, "out channels ..."]
    stride: int
    padding: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def filter_size(self) -> tuple[int, ...]:
        """Size of the filters along each axis."""
        return tuple(self.filters.shape[2:])


def convolution_weights(
    channels: Sequence[int], sizes: Sequence[int | Sequence[int]], *, generator: torch.Generator
) -> list[Tensor]:
    """Draw filters `(out, in, *size)` of Kaiming normal initialisation, gain 1, for channels `[c_0, m_1, ..., c_L]`."""
    shapes = [(size,) if isinstance(size, Integral) else tuple(size) for size in sizes]
    return [
        torch.randn(out, fan_in, *shape, generator=generator, device=generator.device, dtype=torch.float64)
        / (fan_in * prod(shape)) ** 0.5
        for (fan_in, out), shape in zip(pairwise(channels), shapes, strict=True)
    ]


def toeplitz(
    filters: Float[Tensor, "out channels ..."], size: int | Sequence[int], stride: int = 1, padding: int = 0
) -> Float[Tensor, "rows columns"]:
    r"""Return the matrix of a convolutional layer, with :math:`\mathrm{vec}(w * x) = T \mathrm{vec}(x)`, vec row-major.

    Each block, an output channel by an input channel, is the Toeplitz matrix of a filter (Zhao 2024, appendix B, with
    stride 1 and no padding). `size` is the number of input positions, along each axis.
    """
    filters = as_float64(filters, "filters")
    size = (size,) if isinstance(size, Integral) else tuple(size)
    layer = _layer(filters, size, stride, padding)
    out, fan_in = filters.shape[:2]
    shifts = []
    for axis in zip(layer.filter_size, layer.inputs, layer.outputs, strict=True):
        tap, read, output = (torch.arange(count, device=filters.device) for count in axis)
        picks = stride * output[:, None] + tap[:, None, None] - padding == read  # what each output reads at each tap
        shifts.append(picks.to(filters))
    spelling = {1: "oia,apx->opix", 2: "oiab,apx,bqy->opqixy"}[len(size)]
    matrix = torch.einsum(spelling, filters, *shifts)
    return matrix.reshape(out * prod(layer.outputs), fan_in * prod(layer.inputs))


def convolve(x: Tensor, filters: Tensor, stride: int, padding: int = 0) -> Tensor:
    """Return the cross-correlation that networks call a convolution, in one or two dimensions."""
    return {3: functional.conv1d, 4: functional.conv2d}[x.ndim](x, filters, stride=stride, padding=padding)


def as_convolutions(
    filters: Sequence[Tensor], x: Tensor, stride: Option, padding: Option
) -> tuple[list[Convolution], Tensor]:
    """Return the layers of a network and its input in double precision."""
    x, size, layers = as_float64(x, "x"), tuple(x.shape[2:]), []
    each = ([o] * len(filters) if isinstance(o, Integral) else o for o in (stride, padding))
    for i, (w, s, p) in enumerate(zip(filters, *each, strict=True)):
        layers.append(_layer(as_float64(w, f"filters[{i}]"), size, s, p))
        size = layers[-1].outputs
    return layers, x


def _layer(filters: Tensor, inputs: tuple[int, ...], stride: int, padding: int) -> Convolution:
    taps, padded = tuple(filters.shape[2:]), tuple(size + 2 * padding for size in inputs)
    outputs = tuple((size - k) // stride + 1 for k, size in zip(taps, padded, strict=True))
    return Convolution(filters, int(stride), int(padding), inputs, outputs)

"""Linear convolutional networks in one and two dimensions, and the Toeplitz matrices of their layers."""

from collections.abc import Sequence
from itertools import chain, pairwise
from math import prod
from numbers import Integral
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from gnlib.checks import as_float64


class Convolution(NamedTuple):
    """A layer without bias, as `torch.nn.functional.conv1d` and `conv2d` have it.

    Attributes
    ----------
    filters
        `(out, in, *size)` tensor
    stride, padding
        the same along each axis; padding is with zeros, on both sides
    inputs, outputs
        number of positions along each axis, before and after
    """

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
    """Draw the filters of a linear convolutional network at Kaiming normal initialisation of gain 1.

    Parameters
    ----------
    channels
        `[c_0, m_1, ..., c_L]`, from the input to the output
    sizes
        size of the filters of each layer: an integer in one dimension, a pair in two
    generator
        source of the random numbers; the filters are on its device

    Returns
    -------
    Filters of shape `(out, in, *size)`, input layer first, with independent entries of standard deviation
    `1 / sqrt(in * prod(size))`.
    """
    shapes = [(size,) if isinstance(size, Integral) else tuple(size) for size in sizes]
    if any(not isinstance(count, Integral) or count < 1 for count in chain(channels, *shapes)):
        raise ValueError(f"channels is {list(channels)} and sizes is {list(sizes)}; integers from 1 on were expected.")
    if not sizes or len(channels) != len(sizes) + 1:
        raise ValueError(
            f"channels has {len(channels)} entries and sizes has {len(sizes)}; give one size for each layer, and "
            "one number of channels more than that, [inputs, ..., outputs]."
        )
    return [
        torch.randn(out, fan_in, *shape, generator=generator, device=generator.device, dtype=torch.float64)
        / (fan_in * prod(shape)) ** 0.5
        for (fan_in, out), shape in zip(pairwise(channels), shapes, strict=True)
    ]


def convolution_network(
    filters: Sequence[Tensor], x: Tensor, stride: int | Sequence[int] = 1, padding: int | Sequence[int] = 0
) -> Tensor:
    """Return the outputs of a linear convolutional network, of shape `(n, c_L, *positions)`.

    Parameters
    ----------
    filters
        tensors of shape `(out, in, *size)`, input layer first
    x
        samples of shape `(n, c_0, *size)`, one-dimensional or two-dimensional
    stride, padding
        one for all layers, or one for each
    """
    layers, x = as_convolutions(filters, x, stride, padding)
    for layer in layers:
        x = convolve(x, layer.filters, layer.stride, layer.padding)
    return x


def toeplitz(
    filters: Float[Tensor, "out channels ..."], size: int | Sequence[int], stride: int = 1, padding: int = 0
) -> Float[Tensor, "rows columns"]:
    r"""Return the matrix of a convolutional layer, with :math:`\mathrm{vec}(w * x) = T \mathrm{vec}(x)`.

    Row-major vec takes the channel as the outer index. Each block, an output channel by an input channel, is the
    Toeplitz matrix of a filter (Zhao 2024, appendix B, with stride 1 and no padding), and in two dimensions a Toeplitz
    matrix of Toeplitz matrices.

    Parameters
    ----------
    filters
        of shape `(out, in, k)` in one dimension, `(out, in, k, k')` in two
    size
        number of input positions, along each axis
    stride, padding
        as for :func:`convolution_network`

    Returns
    -------
    A matrix with a row for each output channel and output position, and a column for each input channel and position.

    Raises
    ------
    ValueError
        Filters that are not of such a shape, not finite, or longer than the padded input; a stride below 1 or a
        negative padding.
    """
    filters = as_float64(filters, "filters")
    size = (size,) if isinstance(size, Integral) else tuple(size)
    layer = _layer(filters, size, stride, padding, "filters")
    out, fan_in = filters.shape[:2]
    axes = zip(layer.filter_size, layer.inputs, layer.outputs, strict=True)
    shifts = [_shifts(*axis, layer).to(filters) for axis in axes]
    spelling = {1: "oia,apx->opix", 2: "oiab,apx,bqy->opqixy"}[len(size)]
    matrix = torch.einsum(spelling, filters, *shifts)
    return matrix.reshape(out * prod(layer.outputs), fan_in * prod(layer.inputs))


def _shifts(taps: int, inputs: int, outputs: int, layer: Convolution) -> Tensor:
    """For each tap along an axis, the matrix of zeros and ones that picks what each output reads there."""
    read, tap, output = (torch.arange(count, device=layer.filters.device) for count in (inputs, taps, outputs))
    return layer.stride * output[:, None] + tap[:, None, None] - layer.padding == read


def convolve(x: Tensor, filters: Tensor, stride: int, padding: int = 0) -> Tensor:
    """Return the cross-correlation that networks call a convolution, in one or two dimensions."""
    return {3: functional.conv1d, 4: functional.conv2d}[x.ndim](x, filters, stride=stride, padding=padding)


def as_convolutions(
    filters: Sequence[Tensor], x: Tensor, stride: int | Sequence[int], padding: int | Sequence[int]
) -> tuple[list[Convolution], Tensor]:
    """Return the layers of a network and its input in double precision, after checking that they fit together."""
    x = as_float64(x, "x")
    if x.ndim not in (3, 4):
        raise ValueError(
            f"x has shape {tuple(x.shape)}; samples of shape (n, channels, length) or (n, channels, height, width) "
            "were expected."
        )
    filters = [as_float64(w, f"filters[{i}]") for i, w in enumerate(filters)]
    if not filters:
        raise ValueError("filters is empty; a network needs at least one layer.")
    strides, paddings = (
        _one_each(value, len(filters), name) for value, name in ((stride, "stride"), (padding, "padding"))
    )
    layers, size, channels, source = [], tuple(x.shape[2:]), x.shape[1], "x"
    for i, (w, s, p) in enumerate(zip(filters, strides, paddings, strict=True)):
        layers.append(_layer(w, size, s, p, f"filters[{i}]"))
        if w.shape[1] != channels:
            raise ValueError(
                f"filters[{i}] takes {w.shape[1]} channels but {source} has {channels}; filters are "
                "(out, in, *size), input layer first."
            )
        size, channels, source = layers[-1].outputs, w.shape[0], f"the output of filters[{i}]"
    return layers, x


def _one_each(value: int | Sequence[int], count: int, name: str) -> list[int]:
    values = [value] * count if isinstance(value, Integral) else list(value)
    if len(values) != count:
        raise ValueError(f"{name} has {len(values)} entries for {count} layers; give one for each, or a single number.")
    return values


def _layer(filters: Tensor, inputs: tuple[int, ...], stride: int, padding: int, name: str) -> Convolution:
    if len(inputs) not in (1, 2) or filters.ndim != 2 + len(inputs):
        raise ValueError(
            f"{name} has shape {tuple(filters.shape)} but the input has {len(inputs)} axes; (out, in, k) for one axis "
            "or (out, in, k, k') for two were expected."
        )
    if not isinstance(stride, Integral) or stride < 1:
        raise ValueError(f"The stride of {name} is {stride}; an integer from 1 on was expected.")
    if not isinstance(padding, Integral) or padding < 0:
        raise ValueError(f"The padding of {name} is {padding}; an integer from 0 on was expected.")
    taps = tuple(filters.shape[2:])
    padded = tuple(size + 2 * padding for size in inputs)
    if any(k > size for k, size in zip(taps, padded, strict=True)):
        raise ValueError(
            f"{name} has filters of size {taps} but its input, padding included, is of size {padded}; take smaller "
            "filters or more padding."
        )
    outputs = tuple((size - k) // stride + 1 for k, size in zip(taps, padded, strict=True))
    return Convolution(filters, int(stride), int(padding), inputs, outputs)

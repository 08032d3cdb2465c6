r"""The outputs of a piecewise affine network as a function of the weights of one layer (Riedi 2022, sections 3.3, 3.4).

With the other layers fixed, the outputs on a sample are :math:`\widehat y = M D W z + B` in a region of weights W:
affine in W, and the squared error is a quadratic. Layers are numbered from 0.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.shared.piecewise_linear import ON_BORDER, Layer, in_double
from gnlib.checks import as_float64, as_samples


class Factors(NamedTuple):
    r"""Factors of the outputs around one layer, :math:`\widehat y = M D W z + B` (Riedi 2022, Eq. 42)."""

    z: Float[Tensor, "n d"]  # inputs of the layer
    slopes: Float[Tensor, "n m"]  # the diagonals of D
    after: Float[Tensor, "n k m"]  # the matrices M of the layers after it
    offset: Float[Tensor, "n k"]  # the constants B

    @property
    def product(self) -> Float[Tensor, "n k m"]:
        """The matrices MD."""
        return self.after * self.slopes[:, None]


class Stretch(NamedTuple):
    """Part of a line along which the outputs `offset + t slope`, each of shape `(n, k)`, are affine in t."""

    start: float
    stop: float
    offset: Float[Tensor, "n k"]
    slope: Float[Tensor, "n k"]

    def loss(self, y: Float[Tensor, "n k"]) -> tuple[float, float, float]:
        r"""Return the coefficients of 1, t and t^2 in the loss :math:`\frac1n \sum_i \|y_i - \widehat y_i\|^2`."""
        residual, n = y - self.offset, len(y)
        coefficients = residual.square().sum(), -2 * (residual * self.slope).sum(), self.slope.square().sum()
        return tuple(c.item() / n for c in coefficients)


def layer_factors(layers: Sequence[Layer], index: int, x: Float[Tensor, "n d"]) -> Factors:
    r"""Return the factors of :math:`\widehat y = M D W z + B` around a layer, for each sample (Riedi 2022, Eq. 42)."""
    layers, z = _inputs(layers, index, x)
    layer, *later = layers[index:]
    first = slopes = _slopes(layer, z)
    h, offset = _through(layer, slopes, z), _through(layer._replace(weight=0 * layer.weight), slopes, z)
    after = torch.eye(len(layer.weight), dtype=z.dtype, device=z.device).expand(len(z), -1, -1)
    for following in later:
        slopes = _slopes(following, h)
        h, offset = _through(following, slopes, h), _through(following, slopes, offset)
        around = following.skip * after if following.skip else 0
        after = slopes[..., None] * (following.weight @ after) + around
    return Factors(z=z, slopes=first, after=after, offset=offset)


def along_line(
    layers: Sequence[Layer], index: int, x: Float[Tensor, "n d"], direction: Float[Tensor, "m d_l"], stop: float = 1.0
) -> list[Stretch]:
    r"""Return the outputs along a line of weights of one layer, :math:`W + t V` for t from 0, piece by piece.

    Each pre-activation is affine in t as long as those before it keep their signs, and the next one to vanish ends the
    piece: the borders are roots of affine functions, not found by sampling.
    """
    layers, z = _inputs(layers, index, x)
    moved, stretches, t = z @ as_float64(direction, "direction").mT, [], 0.0
    while t < stop:
        out, rate, end = z, torch.zeros_like(z), stop
        for number, layer in enumerate(layers[index:]):
            values, rates = out @ layer.weight.mT + layer.bias, rate @ layer.weight.mT if number else moved
            slopes, root = _until_zero(layer, values, rates, t)
            around = (layer.skip * out, layer.skip * rate) if layer.skip else (0, 0)
            out, rate, end = slopes * values + around[0], slopes * rates + around[1], min(end, root)
        stretches.append(Stretch(start=t, stop=end, offset=out, slope=rate))
        t = end
    return stretches


def _until_zero(layer: Layer, values: Tensor, rates: Tensor, t: float) -> tuple[Tensor, float]:
    """Return the slopes of a layer just after t, and when the first of `values + t rates` vanishes."""
    now = values + t * rates
    at_zero = now.abs() <= ON_BORDER * (values.abs() + (t * rates).abs())
    slopes = torch.ones_like(values).where(rates.where(at_zero, now) > 0, layer.slope)
    ahead = ~at_zero & (now * rates < 0)
    if layer.slope == 1 or not ahead.any():
        return slopes, math.inf
    return slopes, (-values[ahead] / rates[ahead]).min().item()


def _inputs(layers: Sequence[Layer], index: int, x: Float[Tensor, "n d"]) -> tuple[list[Layer], Tensor]:
    """Return the layers in double precision, and the inputs of one."""
    layers, x = in_double(layers), as_samples(x)
    for layer in layers[:index]:
        x = _through(layer, _slopes(layer, x), x)
    return layers, x


def _slopes(layer: Layer, z: Float[Tensor, "n d"]) -> Float[Tensor, "n m"]:
    """Return the diagonals of D."""
    values = z @ layer.weight.mT + layer.bias
    return torch.ones_like(values).where(values > 0, layer.slope)


def _through(layer: Layer, slopes: Float[Tensor, "n m"], z: Float[Tensor, "n d"]) -> Float[Tensor, "n m"]:
    """Return `D (W z + b) + skip z`, with D given."""
    values = slopes * (z @ layer.weight.mT + layer.bias)
    return values + layer.skip * z if layer.skip else values

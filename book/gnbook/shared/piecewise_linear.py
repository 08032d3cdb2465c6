r"""Networks as continuous piecewise affine maps, layer by layer (Riedi 2022, section 3).

A layer is (Riedi 2022, Eq. 1) :math:`z \mapsto \varphi(W z + b) + \rho z` with :math:`\varphi(t) = \max(t, \eta t)`:
a ReLU for :math:`\eta = 0`, the absolute value for -1, nothing for 1. Where the signs of :math:`W z + b` do not change
it is the affine map :math:`(D W + \rho I) z + D b`, with the slopes 1 and :math:`\eta` on the diagonal of D. The map of
the whole network is a product of such factors; :mod:`gnbook.shared.local_affine` finds the same by automatic
differentiation.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gnlib.checks import as_float64

ON_BORDER = 1e-12  # a pre-activation that is zero but for rounding, relative to its terms


class Kink(nn.Module):
    r"""The activation :math:`\max(t, \eta t)`, of a slope from -1 (absolute value) over 0 (ReLU) to 1 (linear)."""

    def __init__(self, slope: float) -> None:
        super().__init__()
        self.slope = slope

    def forward(self, t: Tensor) -> Tensor:
        """Return the values; at 0 the derivative is the slope, as in torch."""
        return t.where(t > 0, self.slope * t)


class SkipLayer(nn.Module):
    r"""A layer with a skip, :math:`\varphi(W z + b) + \rho z` (Riedi 2022, Eq. 1)."""

    def __init__(
        self, weight: Float[Tensor, "m d"], bias: Float[Tensor, " m"], slope: float = 0.0, skip: float = 0.0
    ) -> None:
        super().__init__()
        self.weight, self.bias = (nn.Parameter(t.double().clone()) for t in (weight, bias))
        self.skip = float(skip)
        self.activation = Kink(slope)

    def forward(self, z: Float[Tensor, "n d"]) -> Float[Tensor, "n m"]:
        """Return the outputs."""
        values = self.activation(nn.functional.linear(z, self.weight, self.bias))
        return values + self.skip * z if self.skip else values


class Layer(NamedTuple):
    """A layer as the formulas have it: `max(t, slope t) + skip z` of `t = weight z + bias`."""

    weight: Float[Tensor, "m d"]
    bias: Float[Tensor, " m"]
    slope: float = 1.0
    skip: float = 0.0


class Piece(NamedTuple):
    """The affine map that a network is in the region of one point, and that region."""

    matrix: Float[Tensor, "k d"]  # the network is matrix @ x + offset there
    offset: Float[Tensor, " k"]
    slopes: tuple[Tensor, ...]  # the diagonals of D, for each activation
    # the region is where normals @ x + levels >= 0: a row for each unit with a kink, its pre-activation or minus that
    normals: Float[Tensor, "u d"]
    levels: Float[Tensor, " u"]

    def __call__(self, points: Float[Tensor, "*n d"]) -> Float[Tensor, "*n k"]:
        """Return the affine map at points, in the region or not."""
        return points @ self.matrix.mT + self.offset

    def contains(self, points: Float[Tensor, "*n d"]) -> Bool[Tensor, "*n"]:
        """Return which points are in the closed region."""
        return (points @ self.normals.mT + self.levels >= 0).all(-1)

    def exit(self, point: Float[Tensor, " d"], direction: Float[Tensor, " d"]) -> float:
        """Return the distance from a point of the region to its border, in units of `direction`."""
        heights, rates = self.normals @ point + self.levels, self.normals @ direction
        leaving = rates < 0
        return (heights[leaving] / -rates[leaving]).min().item() if leaving.any() else math.inf


def as_layers(module: nn.Module) -> list[Layer]:
    """Return the layers of a network, for the products.

    Allowed are :class:`SkipLayer` and `torch.nn.Linear`, each with or without one of `ReLU`, `LeakyReLU` and
    :class:`Kink` after it, in nested `Sequential`; `Flatten` may stand between.
    """
    layers: list[Layer] = []
    for part in _flat(module):
        kink = kink_of(part)
        if isinstance(part, SkipLayer):
            layers.append(Layer(weight=part.weight, bias=part.bias, slope=part.activation.slope, skip=part.skip))
        elif isinstance(part, nn.Linear):
            bias = part.weight.new_zeros(len(part.weight)) if part.bias is None else part.bias
            layers.append(Layer(part.weight, bias))
        elif kink is not None:
            layers[-1] = layers[-1]._replace(slope=kink)
        elif not isinstance(part, nn.Flatten):
            raise ValueError(f"{type(part).__name__} is no layer of the form max(t, slope t); use local_affine for it.")
    return in_double(layers)


def kink_of(module: nn.Module) -> float | None:
    """Return the slope of an activation `max(t, slope t)`, None for anything else."""
    if isinstance(module, nn.ReLU):
        return 0.0
    if isinstance(module, nn.LeakyReLU):
        return module.negative_slope
    return module.slope if isinstance(module, Kink) else None


def in_double(layers: Sequence[Layer]) -> list[Layer]:
    """Return layers in double precision."""
    return [Layer(as_float64(w, "weight"), as_float64(b, "bias"), slope, skip) for w, b, slope, skip in layers]


def affine_products(layers: Sequence[Layer], x: Float[Tensor, " d"]) -> Piece:
    r"""Return the affine map of a network in the region of a point, by products (Riedi 2022, Eq. 37 and 38).

    The matrix is :math:`\prod_k (D_k W_k + \rho_k I)`, and each layer adds :math:`D_k b_k` to the offset of the one
    before. (Eq. 38 has :math:`b_k` there, which is right only where all units are active; see the claims.) A point on
    the border of a region, where the map is not unique, is refused.
    """
    layers, x = in_double(layers), as_float64(x, "x")
    matrix, offset = torch.eye(len(x), dtype=x.dtype, device=x.device), torch.zeros_like(x)
    normals, levels, slopes = [x.new_zeros(0, len(x))], [x.new_zeros(0)], []
    for weight, bias, slope, skip in layers:
        normal, level = weight @ matrix, weight @ offset + bias
        values = normal @ x + level
        slopes.append(torch.ones_like(values).where(values > 0, slope))
        if slope != 1:
            normals.append(normal)
            levels.append(level)
        around = (skip * matrix, skip * offset) if skip else (0, 0)
        matrix, offset = slopes[-1][:, None] * normal + around[0], slopes[-1] * level + around[1]
    return Piece(matrix, offset, tuple(slopes), *oriented(torch.cat(normals), torch.cat(levels), x))


def oriented(
    normals: Float[Tensor, "u d"], levels: Float[Tensor, " u"], x: Float[Tensor, " d"]
) -> tuple[Tensor, Tensor]:
    """Return the pre-activations, as affine functions, with the signs that make them positive at x."""
    values = normals @ x + levels
    zero = values.abs() <= ON_BORDER * (normals.norm(dim=1) * x.norm() + levels.abs())
    borders = zero & normals.any(1)  # a unit that is zero in the whole region makes no border
    if borders.any():
        raise ValueError("The point lies on the border of a region, where the affine map is not unique; move it.")
    signs = torch.ones_like(values).where(values > 0, -1)
    return signs[:, None] * normals, signs * levels


def _flat(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules of nested Sequentials, in order."""
    if isinstance(module, nn.Sequential):
        for part in module:
            yield from _flat(part)
    else:
        yield module

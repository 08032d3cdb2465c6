"""Functions that torch has in single precision alone, written for any: quantisation-aware training, grouped products.

References
----------
B. Jacob et al. (2018), Quantization and training of neural networks for efficient integer-arithmetic-only inference,
CVPR (fake quantisation, whose derivative is one within the range and zero outside).
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.refused import Refused


def fake_quantize(
    x: Tensor, scale: Tensor, zero_point: Tensor, axis: int | None, least: int, most: int
) -> Float[Tensor, "..."]:
    """Round to multiples of a scale, one for all entries or for each along an axis."""
    if axis is not None:
        shape = [-1 if i == axis else 1 for i in range(x.ndim)]
        scale, zero_point = scale.view(shape), zero_point.view(shape)
    level = torch.round(x / scale) + zero_point
    inside = torch.where((level >= least) & (level <= most), x, 0.0)
    rounded = (level.clamp(least, most) - zero_point) * scale
    return inside + (rounded - inside).detach()


def _by_channel(
    x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Float[Tensor, "..."]:
    return fake_quantize(x, scale, zero_point, axis, quant_min, quant_max)


def _observed(x: Tensor, observes: Tensor, quantizes: Tensor, *settings: Any) -> Float[Tensor, "..."]:
    if observes.any():
        raise Refused(
            "random-module",
            "an observer of ranges is switched on, which changes the function from call to call; apply "
            "torch.ao.quantization.disable_observer to the module",
        )
    _, _, scale, zero_point, _, least, most, axis, by_channel = settings[:9]
    return fake_quantize(x, scale, zero_point, axis if by_channel else None, least, most) if quantizes.any() else x


def grouped_product(a: Float[Tensor, "r i"], b: Float[Tensor, "g i o"], offs: Tensor) -> Float[Tensor, "r o"]:
    """Multiply each group of rows, which ends before its offset, with a matrix of its own."""
    ends = offs.tolist()
    parts = [a[start:end] @ matrix for start, end, matrix in zip([0, *ends], ends, b, strict=False)]
    return torch.cat([*parts, a.new_zeros(len(a) - ends[-1], b.shape[2])])


IN_DOUBLE: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.fake_quantize_per_channel_affine: _by_channel,
    torch.fused_moving_avg_obs_fake_quant: _observed,
    torch._grouped_mm: grouped_product,
}
IN_DOUBLE |= {getattr(torch.nn.functional, "grouped_mm", torch._grouped_mm): grouped_product}
"""What stands in the place of a function in double precision, for the arguments that it takes."""

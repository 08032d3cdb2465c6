"""Intercept the functions of torch that a forward pass calls, and compute them in double precision.

References
----------
B. Jacob et al. (2018), Quantization and training of neural networks for efficient integer-arithmetic-only inference,
CVPR (fake quantisation, whose derivative is one within the range and zero outside).
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gnlib.jacobian.recurrent import MAPPED
from gnlib.refused import Refused

DOUBLE = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64}
DOUBLE |= {torch.complex32: torch.complex128, torch.complex64: torch.complex128}
CASTS = {"float": "double", "half": "double", "bfloat16": "double", "cfloat": "cdouble", "chalf": "cdouble"}
LEGACY = {f"torch.{device}{kind}Tensor" for device in ("", "cuda.") for kind in ("Float", "Half", "BFloat16")}
STORAGE = ("sparse", "sparse_grad", "scale_grad_by_freq")  # how a gradient is stored or scaled, which is not its value
RMS_NORM = "input", "normalized_shape", "weight", "eps"


class Interceptor(TorchFunctionMode):
    """See what Python calls while it is entered: functions of torch, methods and attributes of tensors.

    It sees them under `vmap` and in backward passes too.
    """

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result of a function, or another in its place."""
        raise NotImplementedError

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: D105
        return self.call(function, args, dict(kwargs or {}))


class DoublePrecision(Interceptor):
    """Turn casts to a lower precision into casts to double precision, and record the lower ones in `requested`.

    A cast is a method such as `x.float()`, or a type among the arguments of any function. Autocasting, which is
    recorded too, leaves double precision alone. Tensors of a lower precision that a module holds without having
    registered them are taken in double precision. What depends on the precision of the module, such as the default of
    `nn.RMSNorm`, is that of the module as it was passed.
    """

    def __init__(self, device: torch.device, own: torch.dtype) -> None:
        super().__init__()
        self._device, self._own = device.type, own
        self.requested: set[torch.dtype] = set()

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of torch, in double precision."""
        name = getattr(function, "__name__", "")
        if name == "__get__":  # an attribute, such as a shape
            return function(*args)
        types = [value for value in (*args[1:], *kwargs.values()) if isinstance(value, torch.dtype)]
        if torch.is_autocast_enabled(self._device):
            types.append(torch.get_autocast_dtype(self._device))
        if name in CASTS and isinstance(args[0], Tensor):
            types.append(getattr(torch, name))
            function = getattr(torch.Tensor, CASTS[name])
        self.requested.update(DOUBLE.keys() & types)
        kwargs = {k: v if k == "out" else _lift(_as_double(v, name)) for k, v in kwargs.items()}
        kwargs.update((key, False) for key in STORAGE if kwargs.get(key) is True)
        function = IN_DOUBLE.get(function, MAPPED.get(function, function))
        if name == "rms_norm":
            args, kwargs = (), dict(zip(RMS_NORM, args, strict=False)) | kwargs
            if kwargs.get("eps") is None:
                kwargs["eps"] = torch.finfo(self._own).eps
        in_place = name.endswith(("setitem__", "_")) and (not name.endswith("__") or name.startswith(("__set", "__i")))
        first = args[:1] if in_place else map(_lift, args[:1])
        return function(*first, *[_lift(_as_double(value, name)) for value in args[1:]], **kwargs)


def _as_double(value: Any, name: str) -> Any:
    """Return an argument of a function with double precision in place of a lower one."""
    if isinstance(value, torch.dtype):
        return DOUBLE.get(value, value)
    if name == "type" and (value in LEGACY or getattr(value, "__name__", "").endswith("Tensor")):
        legacy = value if isinstance(value, str) else f"{value.__module__}.{value.__name__}"
        return torch.float64 if legacy in LEGACY else value
    if name in ("to", "type_as") and isinstance(value, Tensor) and value.dtype in DOUBLE:
        return value.to(DOUBLE[value.dtype])
    return value


def _lift(value: Any) -> Any:
    """Return a tensor of a lower precision in double precision, or a list with such tensors."""
    if isinstance(value, Tensor) and value.dtype in DOUBLE:
        return value.to(DOUBLE[value.dtype])
    return type(value)(map(_lift, value)) if type(value) in (list, tuple) else value


class Downcasts(TorchDispatchMode):
    """Record in `operations` those, of whatever origin, that take double precision and return a lower one."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: dict[str, torch.dtype] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: D105
        result = function(*args, **(kwargs or {}))
        lower = [t.dtype for t in tree_leaves(result) if isinstance(t, Tensor) and t.dtype in DOUBLE]
        if lower and any(isinstance(t, Tensor) and t.dtype in DOUBLE.values() for t in tree_leaves((args, kwargs))):
            self.operations[str(function)] = lower[0]
        return result


# Functions that torch has in single precision alone: quantisation-aware training, grouped products


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

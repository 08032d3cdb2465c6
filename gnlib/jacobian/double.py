"""Double precision throughout a forward pass, whatever the pass itself asks for."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gnlib.jacobian.intercept import Watch

WIDE = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64}
WIDE |= {torch.complex32: torch.complex128, torch.complex64: torch.complex128}
METHODS = {"float": "double", "half": "double", "bfloat16": "double", "cfloat": "cdouble", "chalf": "cdouble"}
LEGACY = {f"torch.{device}{kind}Tensor" for device in ("", "cuda.") for kind in ("Float", "Half", "BFloat16")}
STORED = ("sparse", "sparse_grad", "scale_grad_by_freq")  # how a gradient is stored or scaled, which is not its value


class InDouble(Watch):
    """Turn the casts of a forward pass to a lower precision into casts to double precision.

    It sees what Python calls: methods such as `x.float()`, and types among the arguments of any function of torch. It
    does so under `vmap` and in backward passes too. Autocasting leaves double precision alone.
    """

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of torch, in double precision."""
        name = getattr(function, "__name__", "")
        if name == "__get__":  # an attribute, such as a shape
            return function(*args)
        if name in METHODS and isinstance(args[0], Tensor):
            function = getattr(torch.Tensor, METHODS[name])
        kwargs = {key: _wide(value, name) for key, value in kwargs.items()}
        kwargs.update((key, False) for key in STORED if kwargs.get(key) is True)
        return function(*args[:1], *[_wide(value, name) for value in args[1:]], **kwargs)


class Casts(Watch):
    """Take note of the precisions that a forward pass asks for, by a cast or by autocasting."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[torch.dtype] = set()

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of torch."""
        name = getattr(function, "__name__", "")
        asked = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.dtype)]
        if name in METHODS:
            asked.append(getattr(torch, name))
        for device in {value.device.type for value in args if isinstance(value, Tensor)}:
            if torch.is_autocast_enabled(device):
                asked.append(torch.get_autocast_dtype(device))
        self.found.update(dtype for dtype in asked if dtype in WIDE)
        return function(*args, **kwargs)


class Losses(TorchDispatchMode):
    """Take note of the operations, of whatever origin, that take double precision and return a lower one."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, torch.dtype] = {}

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call an operation, and compare the types of what it takes and returns."""
        result = function(*args, **(kwargs or {}))
        lost = [t.dtype for t in tree_leaves(result) if isinstance(t, Tensor) and t.dtype in WIDE]
        if lost and any(isinstance(t, Tensor) and t.dtype in WIDE.values() for t in tree_leaves((args, kwargs))):
            self.found[str(function)] = lost[0]
        return result


def _wide(value: Any, name: str) -> Any:
    """Return an argument with double precision in place of a lower one."""
    if isinstance(value, torch.dtype):
        return WIDE.get(value, value)
    if name == "type" and (value in LEGACY or getattr(value, "__name__", "").endswith("Tensor")):
        legacy = value if isinstance(value, str) else f"{value.__module__}.{value.__name__}"
        return torch.float64 if legacy in LEGACY else value
    if name in ("to", "type_as") and isinstance(value, Tensor) and value.dtype in WIDE:
        return value.to(WIDE[value.dtype])
    return value

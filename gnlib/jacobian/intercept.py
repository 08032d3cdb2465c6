"""Intercept the functions that a forward pass calls: to compute them in double precision, and to see random numbers."""

import pickle
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

DOUBLE = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64}
DOUBLE |= {torch.complex32: torch.complex128, torch.complex64: torch.complex128}
CASTS = {"float": "double", "half": "double", "bfloat16": "double", "cfloat": "cdouble", "chalf": "cdouble"}
LEGACY = {f"torch.{device}{kind}Tensor" for device in ("", "cuda.") for kind in ("Float", "Half", "BFloat16")}
STORAGE = ("sparse", "sparse_grad", "scale_grad_by_freq")  # how a gradient is stored or scaled, which is not its value
GENERATORS = torch.Generator, np.random.Generator, np.random.RandomState, random.Random
UNIFORM = ("rand", "rand_like")


class Interceptor(TorchFunctionMode):
    """See what Python calls while it is entered: functions of torch, methods and attributes of tensors.

    It sees them under `vmap` and in backward passes too.
    """

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result of a function, or another in its place."""
        raise NotImplementedError

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: D105
        return self.call(function, args, dict(kwargs or {}))


# Precision


class DoublePrecision(Interceptor):
    """Turn casts to a lower precision into casts to double precision, and record the lower ones in `requested`.

    A cast is a method such as `x.float()`, or a type among the arguments of any function. Autocasting, which is
    recorded too, leaves double precision alone.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device.type
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
        kwargs = {key: _as_double(value, name) for key, value in kwargs.items()}
        kwargs.update((key, False) for key in STORAGE if kwargs.get(key) is True)
        return function(*args[:1], *[_as_double(value, name) for value in args[1:]], **kwargs)


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


# Random numbers


class Generators:
    """The generators of random numbers: those of torch, NumPy and Python, and those among the attributes given."""

    def __init__(self, attributes: Iterable[Any], device: torch.device) -> None:
        held = {id(value): value for value in attributes if isinstance(value, GENERATORS)}
        self._known = [torch.default_generator, np.random, random, *held.values()]
        if device.type == "cuda":
            self._known.append(torch.cuda.default_generators[device.index])

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Put all of them back at the end into the states that they are in."""
        states = self.states()
        try:
            yield
        finally:
            for generator, state in zip(self._known, states, strict=True):
                if isinstance(generator, np.random.Generator):
                    generator.bit_generator.state = state
                elif hasattr(generator, "setstate"):
                    generator.setstate(state)
                else:
                    generator.set_state(state)

    def states(self) -> list[Any]:
        """Return the states that all of them are in."""
        return [_state(generator) for generator in self._known]

    def advance(self) -> None:
        """Put those that are not among the attributes into other states."""
        np.random.random()  # noqa: NPY002
        random.random()
        for generator in self._known:
            if isinstance(generator, torch.Generator):
                torch.rand((), generator=generator, device=generator.device)

    def drawn_from(self, before: list[Any]) -> bool:
        """Say whether a number was drawn since they were in these states."""
        return any(_as_bytes(now) != _as_bytes(then) for now, then in zip(self.states(), before, strict=True))


class PassedGenerators(Interceptor):
    """Record in `states` those of generators that are arguments of a function of torch; put them back at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[bytes] = []
        self._first: dict[int, tuple[torch.Generator, Tensor]] = {}

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of torch."""
        if (generator := kwargs.get("generator")) is not None:
            self._first.setdefault(id(generator), (generator, generator.get_state()))
            self.states.append(_as_bytes(generator.get_state()))
        return function(*args, **kwargs)

    def __exit__(self, *error: object) -> None:
        """Put the generators back."""
        super().__exit__(*error)
        for generator, state in self._first.values():
            generator.set_state(state)


class ConstantUniform(Interceptor):
    """Return one number in place of all that are drawn uniformly, without drawing: other draws still move a state."""

    def __init__(self, generators: Generators, number: float) -> None:
        super().__init__()
        self._generators, self._number = generators, number

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of torch, and fill its result if that is uniform."""
        if getattr(function, "__name__", "") not in UNIFORM:
            return function(*args, **kwargs)
        with self._generators.restored():
            return function(*args, **kwargs).fill_(self._number)


def _state(generator: Any) -> Any:
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    return generator.getstate() if hasattr(generator, "getstate") else generator.get_state()


def _as_bytes(state: Any) -> bytes:
    return state.numpy().tobytes() if isinstance(state, Tensor) else pickle.dumps(state)

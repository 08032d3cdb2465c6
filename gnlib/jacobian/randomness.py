"""Random numbers in a forward pass: where they come from, and whether they matter."""

import pickle
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import CellType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnlib.jacobian.intercept import Interceptor

GENERATORS = torch.Generator, np.random.Generator, np.random.RandomState, random.Random
UNIFORM = ("rand", "rand_like")


class Generators:
    """The generators of random numbers: those of torch, NumPy and Python, those held, and those seen in calls.

    A generator in a variable of a file, or in what stands there, is seen when a function that names it is called
    (:meth:`seen`).
    """

    def __init__(self, attributes: Iterable[object], device: torch.device) -> None:
        held = [value for value in _held(attributes) if isinstance(value, GENERATORS)]
        self._known = {id(generator): generator for generator in (torch.default_generator, np.random, random, *held)}
        if device.type == "cuda":
            generator = torch.cuda.default_generators[device.index]
            self._known[id(generator)] = generator
        self._states: dict[int, Any] = {}

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Put all of them back at the end into the states that they are in, or were when they were first seen."""
        outer, self._states = self._states, self._read()
        try:
            yield
        finally:
            for key, state in self._states.items():
                generator = self._known[key]
                if isinstance(generator, np.random.Generator):
                    generator.bit_generator.state = state
                elif hasattr(generator, "setstate"):
                    generator.setstate(state)
                else:
                    generator.set_state(state)
            self._states = outer

    @contextmanager
    def seen(self) -> Iterator[None]:
        """Look for further ones in what the functions that are called name."""
        codes: set[CodeType] = set()

        def look(frame: FrameType, event: str, argument: object) -> None:
            if event == "c_call":
                self._add(getattr(argument, "__self__", None))
            elif event == "call" and frame.f_code not in codes:
                codes.add(frame.f_code)
                names = frame.f_code.co_names
                for value in _held((frame.f_globals.get(name) for name in names), names):
                    self._add(value)

        if sys.getprofile() is not None:  # a user profiles, and there can be one alone
            yield
            return
        sys.setprofile(look)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _add(self, value: object) -> None:
        if isinstance(value, GENERATORS) and id(value) not in self._known:
            with suppress(AttributeError):  # one that is just being made has no state
                self._states[id(value)] = _state(value)
                self._known[id(value)] = value

    def states(self) -> list[Any]:
        """Return the states that all of them are in."""
        return [*self._read().values()]

    def _read(self) -> dict[int, Any]:
        return {key: _state(generator) for key, generator in self._known.items()}

    def advance(self) -> None:
        """Put those of torch, NumPy and Python into other states."""
        np.random.random()  # noqa: NPY002
        random.random()
        for generator in self._known.values():
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


def _held(values: Iterable[object], names: Sequence[str] = (), depth: int = 3) -> Iterator[object]:
    """Yield values, and what they hold: entries, attributes, variables of a closure, these variables of a file."""
    for value in values if depth else ():
        yield value
        inner: Iterable[object] = ()
        if isinstance(value, ModuleType):
            inner = [vars(value).get(name) for name in names]
        elif isinstance(value, dict):
            inner = [*value.values()]
        elif isinstance(value, list | tuple):
            inner = value
        elif isinstance(value, FunctionType):
            inner = [cell.cell_contents for cell in value.__closure__ or () if cell != CellType()]
        elif not isinstance(value, type | nn.Module | Tensor | Callable):
            inner = [*getattr(value, "__dict__", {}).values()]
        yield from _held(inner, names, depth - 1)


def _state(generator: Any) -> Any:
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    return generator.getstate() if hasattr(generator, "getstate") else generator.get_state()


def _as_bytes(state: Any) -> bytes:
    return state.numpy().tobytes() if isinstance(state, Tensor) else pickle.dumps(state)

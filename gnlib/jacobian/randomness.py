"""Whether a forward pass draws random numbers, and whether it matters."""

import pickle
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnlib.jacobian.intercept import Watch

HELD = torch.Generator, np.random.Generator, np.random.RandomState, random.Random
UNIFORM = ("rand", "rand_like")


class Generators:
    """The generators of random numbers: those of torch, NumPy and Python, and those that a module holds."""

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        held = {id(v): v for m in module.modules() for v in vars(m).values() if isinstance(v, HELD)}
        self._known = [torch.default_generator, np.random, random, *held.values()]
        if device.type == "cuda":
            self._known.append(torch.cuda.default_generators[device.index])

    def states(self) -> list[Any]:
        """Return the states that all of them are in."""
        return [_read(generator) for generator in self._known]

    def restore(self, states: list[Any]) -> None:
        """Put all of them into states that they were in."""
        for generator, state in zip(self._known, states, strict=True):
            _write(generator, state)

    def advance(self) -> None:
        """Put those that are not held by the module into other states."""
        np.random.random()  # noqa: NPY002
        random.random()
        for generator in self._known:
            if isinstance(generator, torch.Generator):
                torch.rand((), generator=generator, device=generator.device)

    def drawn_from(self, before: list[Any]) -> bool:
        """Say whether a number was drawn since they were in these states."""
        return any(_as_bytes(now) != _as_bytes(then) for now, then in zip(self.states(), before, strict=True))


class Handed(Watch):
    """Take note of generators that a forward pass hands to torch, in which state, and put them back at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[bytes] = []
        self._found: dict[int, tuple[torch.Generator, Tensor]] = {}

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of torch, and see whether it is handed a generator."""
        if (generator := kwargs.get("generator")) is not None:
            self._found.setdefault(id(generator), (generator, generator.get_state()))
            self.states.append(_as_bytes(generator.get_state()))
        return function(*args, **kwargs)

    def __exit__(self, *error: object) -> None:
        """Put the generators back."""
        super().__exit__(*error)
        for generator, state in self._found.values():
            generator.set_state(state)


class Replaced(Watch):
    """Put one number in the place of all that are drawn uniformly; a generator that moves still is drawn from."""

    def __init__(self, generators: Generators, number: float) -> None:
        super().__init__()
        self._generators, self._number = generators, number

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of torch, and replace what it returns if that is random."""
        if getattr(function, "__name__", "") not in UNIFORM:
            return function(*args, **kwargs)
        before = self._generators.states()
        drawn = function(*args, **kwargs)
        self._generators.restore(before)
        return drawn.fill_(self._number)


def _read(generator: Any) -> Any:
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    return generator.getstate() if hasattr(generator, "getstate") else generator.get_state()


def _write(generator: Any, state: Any) -> None:
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif hasattr(generator, "setstate"):
        generator.setstate(state)
    else:
        generator.set_state(state)


def _as_bytes(state: Any) -> bytes:
    return state.numpy().tobytes() if isinstance(state, Tensor) else pickle.dumps(state)

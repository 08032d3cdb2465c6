"""Results as plain dicts, lists and numbers, which JSON can hold, and results of these again.

What is written says nothing of types: they are read from the annotations of the class.

>>> from gnlib.laws.waiting import Waiting
>>> plain = as_dict(Waiting(lower=3.5, upper=float("inf"), eigenvalue=0.1, largest=2.0))
>>> plain
{'lower': 3.5, 'upper': 'inf', 'eigenvalue': 0.1, 'largest': 2.0}
>>> of_dict(Waiting, plain).upper
inf
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import Tensor

from gnlib.refused import Refused

MOST = 10_000_000  # numbers of a tensor, as text 200 MB
NO_NUMBERS = ("inf", "-inf", "nan")  # of JSON

T = TypeVar("T")


def as_dict(self: Any) -> dict[str, Any]:
    """Return the attributes by their names, as JSON can hold them.

    Results within the result are dicts, tensors nested lists, and infinite numbers and NaN the strings `"inf"`,
    `"-inf"` and `"nan"`. A stable rate has the smallest eigenvalue found for it, None where that cannot be had.

    Raises
    ------
    ValueError
        A tensor of more than ten million numbers.
    """
    if is_dataclass(self):  # but for what no file can hold
        named = {f.name: getattr(self, f.name) for f in fields(self) if f.metadata.get("kept", True)}
    else:
        named = self._asdict()
    return {name: _plain(value, name) for name, value in named.items()}


def of_dict(kind: type[T], plain: object, where: str = "it") -> T:
    """Return the result of a class that these are the attributes of.

    Raises
    ------
    ValueError
        An attribute that is missing, is none of the class, or has another type; the sentence says which.
    """
    if not isinstance(plain, dict):
        raise ValueError(f"{where} is no dict")
    hints, defaults = get_type_hints(kind), _defaults(kind)
    if missing := [name for name in hints if name not in plain and name not in defaults]:
        raise ValueError(f"{where} has no {missing[0]}")
    if unknown := [name for name in plain if name not in hints]:
        raise ValueError(f"{where} has {unknown[0]!r}, which no {kind.__name__} has")
    return kind(**{name: _typed(hints[name], value, name) for name, value in plain.items()})


def _defaults(kind: type) -> set[str]:
    if is_dataclass(kind):
        return {f.name for f in fields(kind) if f.default is not MISSING}
    return set(getattr(kind, "_field_defaults", ()))


def _plain(value: Any, name: str) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Tensor | np.ndarray):
        array = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
        if array.size > MOST:
            raise Refused(
                "too-long", f"{name} has {array.size:,} numbers, too many for text; keep it with torch.save instead."
            )
        entries = array.tolist()
        return entries if np.isfinite(array).all() else _plain(entries, name)
    if isinstance(value, Mapping):
        return {key: _plain(entry, name) for key, entry in value.items()}
    if is_dataclass(value) or hasattr(value, "_asdict"):
        return as_dict(value)
    if isinstance(value, tuple | list):
        return [_plain(entry, name) for entry in value]
    if callable(value):  # that returns a number, at some cost
        try:
            return _plain(value(), name)
        except (ValueError, ArithmeticError):
            return None
    raise TypeError(f"{name} is of type {type(value).__name__}, which cannot be written.")


def _typed(hint: Any, value: Any, name: str) -> Any:
    """Return a plain value as what an annotation asks for."""
    kind, inner = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType):
        own = [each for each in inner if each is not NoneType]
        return None if value is None and len(own) < len(inner) else _typed(own[0], value, name)
    if kind is Callable:
        return _found(None if value is None else _typed(inner[1], value, name))
    if hasattr(hint, "array_type"):
        return _array(hint, value, name)
    if isinstance(hint, type) and (is_dataclass(hint) or hasattr(hint, "_fields")):
        return of_dict(hint, value, name)
    if kind is tuple and isinstance(value, list):
        entries = [inner[0]] * len(value) if inner[-1] is ... else inner
        if len(entries) == len(value):
            return tuple(_typed(each, entry, name) for each, entry in zip(entries, value, strict=True))
    elif isinstance(kind, type) and issubclass(kind, Mapping) and isinstance(value, dict):
        return {key: _typed(inner[1], entry, name) for key, entry in value.items()}
    elif hint is float and (value in NO_NUMBERS or type(value) in (int, float)):
        return float(value) if isinstance(value, str) else value
    elif isinstance(hint, type) and type(value) is hint:
        return value
    raise ValueError(f"{name} is {str(value)[:40]!r}, which it cannot be")


def _array(hint: Any, value: Any, name: str) -> Any:
    """Return nested lists as a tensor or array in double precision."""
    try:
        array = np.array(value, dtype=np.float64)  # which reads "inf" and "nan" too
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is no array of numbers") from error
    if not array.size:  # an empty list does not tell how many axes it has
        array = array.reshape(0, *[1] * (len(hint.dims) - 1))
    if array.ndim != len(hint.dims):
        raise ValueError(f"{name} has {array.ndim} axes, not {len(hint.dims)}")
    return torch.from_numpy(array) if hint.array_type is Tensor else array


def _found(value: Any) -> Callable[[], Any]:
    """Return a function that returns what was found before."""

    def function() -> Any:
        if value is None:
            raise Refused(
                "needs-matrix", "The smallest eigenvalue was not found before this was written; ask for it then."
            )
        return value

    return function

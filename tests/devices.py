"""Calls that are made again on another device, or where nothing can be made without saying on which."""

import copy
import dataclasses
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

import gnlib


def on(device, case):
    """What a function returns for copies of its arguments on this device; a case is a function and its arguments."""
    function, *arguments = case
    return function(*(moved(argument, device) for argument in arguments))


def moved(argument, device):
    if isinstance(argument, torch.Tensor | nn.Module):
        return copy.deepcopy(argument).to(device)
    if isinstance(argument, tuple) and hasattr(argument, "_fields"):
        return type(argument)(*(moved(one, device) for one in argument))
    if isinstance(argument, gnlib.SecondMoment):
        return gnlib.SecondMoment(*(moved(one, device) for one in argument), argument.error)
    return [moved(one, device) for one in argument] if isinstance(argument, list) else argument


@contextmanager
def default_device(name):
    """On "meta" a tensor that is made without `device=` has no data, and is of no use beside those of the CPU."""
    torch.set_default_device(name)
    try:
        yield
    finally:
        torch.set_default_device(None)


def assert_made_where_its_arguments_are(case):
    """With all arguments on the CPU, a function finds the same whatever the default device is."""
    expected = on("cpu", case)
    with default_device("meta"):
        found = on("cpu", case)
    assert_same(found, expected)


def parts(value):
    """Yield a value, and what it holds if it is a list, tuple, mapping or dataclass, each with its type."""
    kind = type(value)
    if dataclasses.is_dataclass(value):
        value = [getattr(value, field.name) for field in dataclasses.fields(value) if field.compare]
    if isinstance(value, dict):
        value = [*value.items()]
    yield kind, None if isinstance(value, list | tuple) else value
    for one in value if isinstance(value, list | tuple) else ():
        yield from parts(one)


def assert_same(found, expected):
    """Compare results bit by bit."""
    for (kind, one), (other_kind, other) in zip(parts(found), parts(expected), strict=True):
        assert kind is other_kind
        if isinstance(other, torch.Tensor):
            assert one.device.type == "cpu" and one.dtype == other.dtype
            assert torch.equal(one.nan_to_num(), other.nan_to_num())
        else:
            np.testing.assert_array_equal(one, other)

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


def assert_same(found, expected):
    """Compare results bit by bit, through lists, tuples, mappings and dataclasses."""
    assert type(found) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert found.device.type == "cpu"
        assert found.dtype == expected.dtype and torch.equal(found.nan_to_num(), expected.nan_to_num())
    elif isinstance(expected, np.ndarray):
        np.testing.assert_array_equal(found, expected)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_same(found[key], expected[key])
    elif dataclasses.is_dataclass(expected):
        for field in dataclasses.fields(expected):
            if field.compare:
                assert_same(getattr(found, field.name), getattr(expected, field.name))
    else:
        assert found == expected

"""Libraries of networks, whether or not torchvision, which they import, loads beside the torch that is there."""

import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from unittest.mock import patch

import pytest

PARTS = "ops ops.misc transforms transforms.functional datasets models models.feature_extraction utils"


class Names(type):
    """Classes that have whatever attribute they are asked for."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class StandIn(ModuleType):
    """A module of such classes."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Names(name, (), {})


def load(name):
    """Import a library, or skip the test where it is not there."""
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError):  # of another build of torch
        return _transformers() if name == "transformers" else _with_stand_ins(name)
    return pytest.importorskip(name)


def _transformers():
    """Import it while torchvision is not found, which it remembers."""
    find = importlib.util.find_spec
    with patch.object(
        importlib.util, "find_spec", lambda name, *more: None if name == "torchvision" else find(name, *more)
    ):
        library = pytest.importorskip("transformers")
        library.utils.is_torchvision_available()
    return library


def _with_stand_ins(name):
    names = ["torchvision", *(f"torchvision.{part}" for part in PARTS.split())]
    modules = {of: StandIn(of) for of in names}
    for of, module in modules.items():
        module.__spec__ = importlib.machinery.ModuleSpec(of, None)
        parent, _, last = of.rpartition(".")
        if parent:
            setattr(modules[parent], last, module)
    before = {key: sys.modules.pop(key) for key in [*sys.modules] if key.partition(".")[0] == "torchvision"}
    sys.modules.update(modules)
    try:
        return pytest.importorskip(name)
    finally:
        for key in modules:
            del sys.modules[key]
        sys.modules.update(before)

"""The examples in the docstrings of the core run."""

import doctest
import importlib
import pkgutil

import pytest

import gnlib

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(gnlib.__path__, "gnlib.") if "__main__" not in module.name
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name):
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert failed == 0

"""The examples in the docstrings of the book's modules run."""

import doctest
import importlib
import pkgutil

import gnbook
import pytest

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(gnbook.__path__, "gnbook.") if "__main__" not in module.name
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name):
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert failed == 0

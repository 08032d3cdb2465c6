"""The examples in the docstrings of the core run, and every public name has one."""

import doctest
import importlib
import pkgutil

import pytest

import gnlib
from gnlib import diagnosis, eigen, jacobian, laws, linear, operators
from gnlib.linear import bounds

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(gnlib.__path__, "gnlib.") if "__main__" not in module.name
)
# Errors that only hard problems show, what is abstract, and steps and results of public functions.
WITHOUT = {
    *(
        "NotConvergedError",
        "NotResolvedError",
        "SymmetricOperator",
        "apply_kronecker_sum",
        "as_second_moment",
        "extreme_squares",
    ),
    *("Lemma2", "Lemma2Terms", "Scatter", "gauss_newton_gram", "jacobian_blocks"),
}
PUBLIC = {
    f"{package.__name__}.{name}": value
    for package in (gnlib, bounds, diagnosis, eigen, jacobian, laws, linear, operators)
    for name, value in vars(package).items()
    if name not in WITHOUT
    and not name.startswith("_")
    and callable(value)
    and getattr(value, "__module__", "").startswith(package.__name__)
    and value.__module__ != "gnlib.renamed"
}


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name):
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert failed == 0


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_public_name_has_an_example(name):
    assert ">>>" in PUBLIC[name].__doc__

"""Gauss-Newton matrices of neural networks, and how well conditioned they are."""

from typing import TYPE_CHECKING, Any

from gnlib import bounds as bounds
from gnlib.condition import condition_number as condition_number
from gnlib.data import load as load
from gnlib.gauss_newton import leaky_relu_gram as leaky_relu_gram
from gnlib.gauss_newton import linear_gauss_newton as linear_gauss_newton
from gnlib.models import linear_network as linear_network
from gnlib.models import linear_weights as linear_weights
from gnlib.moment import SecondMoment as SecondMoment
from gnlib.moment import second_moment as second_moment
from gnlib.moment import whiten as whiten
from gnlib.spectrum import ConditionNumber as ConditionNumber
from gnlib.spectrum import NotConvergedError as NotConvergedError
from gnlib.spectrum import NotResolvedError as NotResolvedError

if TYPE_CHECKING:
    from gnlib.modules import cost as cost
    from gnlib.modules import gauss_newton_gram as gauss_newton_gram
    from gnlib.modules import gauss_newton_operator as gauss_newton_operator
    from gnlib.modules import largest_eigenvalue as largest_eigenvalue

__version__ = "0.1.0"
OF_MODULES = ("cost", "gauss_newton_gram", "gauss_newton_operator", "largest_eigenvalue")


def __getattr__(name: str) -> Any:
    """Load what takes modules apart when it is first asked for: linear networks and matrices need none of it."""
    if name in OF_MODULES:
        from gnlib import modules

        return getattr(modules, name)
    raise AttributeError(f"module 'gnlib' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return all public names."""
    return sorted([*globals(), *OF_MODULES])

"""Gauss-Newton matrices of neural networks, and how well conditioned they are."""

from importlib import import_module
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
    from gnlib.diagnosis import by_layer as by_layer
    from gnlib.diagnosis import culprits as culprits
    from gnlib.diagnosis import eigenvalues as eigenvalues
    from gnlib.diagnosis import forecast as forecast
    from gnlib.diagnosis import largest_stable_rate as largest_stable_rate
    from gnlib.diagnosis import loss_gram as loss_gram
    from gnlib.diagnosis import report as report
    from gnlib.modules import cost as cost
    from gnlib.modules import gauss_newton_gram as gauss_newton_gram
    from gnlib.modules import gauss_newton_operator as gauss_newton_operator
    from gnlib.modules import largest_eigenvalue as largest_eigenvalue

__version__ = "0.1.0"
LATER = {  # names by the room that holds them
    **dict.fromkeys(("cost", "gauss_newton_gram", "gauss_newton_operator", "largest_eigenvalue"), "gnlib.modules"),
    **dict.fromkeys(("by_layer", "culprits", "eigenvalues", "loss_gram"), "gnlib.diagnosis"),
    **dict.fromkeys(("forecast", "largest_stable_rate", "report"), "gnlib.diagnosis"),
}


def __getattr__(name: str) -> Any:
    """Load what takes modules apart when it is first asked for: linear networks and matrices need none of it."""
    if name in LATER:
        return getattr(import_module(LATER[name]), name)
    raise AttributeError(f"module 'gnlib' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return all public names."""
    return sorted([*globals(), *LATER])

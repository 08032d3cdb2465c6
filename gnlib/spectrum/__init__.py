"""The eigen core: both ends of a spectrum, and what is known of them; :mod:`gnlib.spectrum.strategy` says which way."""

from gnlib.spectrum.result import ConditionNumber as ConditionNumber
from gnlib.spectrum.result import NotConvergedError as NotConvergedError
from gnlib.spectrum.result import NotResolvedError as NotResolvedError

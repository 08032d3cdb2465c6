"""The eigen core: both ends of a spectrum, and what is known of them; :mod:`gnlib.eigen.strategy` says which way."""

from gnlib.eigen.davidson import largest_eigenvalue as largest_eigenvalue
from gnlib.eigen.result import ConditionNumber as ConditionNumber
from gnlib.eigen.result import NotConvergedError as NotConvergedError
from gnlib.eigen.result import NotResolvedError as NotResolvedError

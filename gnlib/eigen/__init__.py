"""Linear algebra of large positive semi-definite matrices: both ends of a spectrum, with proved errors.

A condition number carries the eigenvalues, the rank, and how far they are to be trusted:

>>> import gnlib, torch
>>> c = gnlib.condition_number(torch.diag(torch.tensor([4.0, 2.0, 0.0])))
>>> c.largest, c.smallest, c.rank, c.resolved
(4.0, 2.0, 2, True)

The methods for each kind of operand stand in :mod:`gnlib.eigen.strategy`.
"""

from gnlib.eigen.largest import largest_eigenvalue as largest_eigenvalue
from gnlib.eigen.result import ConditionNumber as ConditionNumber
from gnlib.eigen.result import NotConvergedError as NotConvergedError
from gnlib.eigen.result import NotResolvedError as NotResolvedError

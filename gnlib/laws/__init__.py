"""Closed forms: what depth does to a spectrum, and which eigenvalue a training waits for.

>>> from gnlib.laws import deep_linear
>>> round(deep_linear(layers=10, widths=800, data=400).kappa, 1)
88.9
"""

from gnlib.laws.depth import DeepLinear as DeepLinear
from gnlib.laws.depth import deep_linear as deep_linear
from gnlib.laws.depth import kappa as kappa
from gnlib.laws.kernel import relu_kernel as relu_kernel
from gnlib.laws.network import Scatter as Scatter
from gnlib.laws.waiting import Waiting as Waiting
from gnlib.laws.waiting import waiting as waiting

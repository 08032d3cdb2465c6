"""The Gauss-Newton matrix of any torch module, and what it takes; loaded when it is first asked for."""

from gnlib.modules.estimate import cost as cost
from gnlib.modules.gram import gauss_newton_gram as gauss_newton_gram
from gnlib.modules.gram import jacobian_blocks as jacobian_blocks
from gnlib.modules.gram import tangent_kernel as tangent_kernel
from gnlib.modules.products import gauss_newton_operator as gauss_newton_operator
from gnlib.modules.products import largest_eigenvalue as largest_eigenvalue

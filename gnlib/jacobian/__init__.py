"""The Gauss-Newton matrix of any torch module, and what it takes; loaded when it is first asked for."""

from gnlib.jacobian.gram import gauss_newton_gram as gauss_newton_gram
from gnlib.jacobian.gram import jacobian_blocks as jacobian_blocks
from gnlib.jacobian.gram import tangent_kernel as tangent_kernel
from gnlib.jacobian.operator import gauss_newton_operator as gauss_newton_operator
from gnlib.jacobian.operator import largest_eigenvalue as largest_eigenvalue
from gnlib.jacobian.plan import cost as cost

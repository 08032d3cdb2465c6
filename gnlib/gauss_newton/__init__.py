"""The Gauss-Newton matrix of a network, in the form that suits the network."""

from gnlib.gauss_newton.estimate import cost as cost
from gnlib.gauss_newton.hidden_layer import leaky_relu_gram as leaky_relu_gram
from gnlib.gauss_newton.linear import linear_gauss_newton as linear_gauss_newton
from gnlib.gauss_newton.linear import on_the_range as on_the_range
from gnlib.gauss_newton.linear import partial_products as partial_products
from gnlib.gauss_newton.module import gauss_newton_gram as gauss_newton_gram
from gnlib.gauss_newton.module import jacobian_blocks as jacobian_blocks
from gnlib.gauss_newton.module import tangent_kernel as tangent_kernel
from gnlib.gauss_newton.products import gauss_newton_operator as gauss_newton_operator
from gnlib.gauss_newton.products import largest_eigenvalue as largest_eigenvalue

"""The Gauss-Newton matrix of a network, in the form that suits the network."""

from gnlib.gauss_newton.linear import linear_gauss_newton as linear_gauss_newton
from gnlib.gauss_newton.linear import on_the_range as on_the_range
from gnlib.gauss_newton.linear import partial_products as partial_products

"""The Gauss-Newton matrix of linear networks and of one hidden layer, in the form that suits the network."""

from gnlib.gauss_newton.hidden_layer import leaky_relu_gram as leaky_relu_gram
from gnlib.gauss_newton.linear import linear_gauss_newton as linear_gauss_newton
from gnlib.gauss_newton.linear import on_the_range as on_the_range
from gnlib.gauss_newton.linear import partial_products as partial_products

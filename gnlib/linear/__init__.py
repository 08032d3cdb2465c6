"""Linear networks: their weights, their Gauss-Newton matrix as a Kronecker sum, and bounds on its condition number."""

from gnlib.linear.gauss_newton import linear_gauss_newton as linear_gauss_newton
from gnlib.linear.gauss_newton import partial_products as partial_products
from gnlib.linear.gauss_newton import restrict_to_range as restrict_to_range
from gnlib.linear.moment import SecondMoment as SecondMoment
from gnlib.linear.moment import second_moment as second_moment
from gnlib.linear.moment import whiten as whiten
from gnlib.linear.network import linear_network as linear_network
from gnlib.linear.network import linear_weights as linear_weights
from gnlib.linear.reduced import reduced_gauss_newton as reduced_gauss_newton

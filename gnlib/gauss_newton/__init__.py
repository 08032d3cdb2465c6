"""The Gauss-Newton matrix of a network, in the form that suits the network."""

from gnlib.gauss_newton.batch_normalization import batch_norm_gauss_newton as batch_norm_gauss_newton
from gnlib.gauss_newton.batch_normalization import normalized_units as normalized_units
from gnlib.gauss_newton.convolution import convolution_gauss_newton as convolution_gauss_newton
from gnlib.gauss_newton.convolution import path_moment as path_moment
from gnlib.gauss_newton.functional_hessian import functional_hessian as functional_hessian
from gnlib.gauss_newton.functional_hessian import functional_hessian_eigenvalues as functional_hessian_eigenvalues
from gnlib.gauss_newton.functional_hessian import linear_hessian as linear_hessian
from gnlib.gauss_newton.functional_hessian import linear_hessian_product as linear_hessian_product
from gnlib.gauss_newton.functional_hessian import residual_moment as residual_moment
from gnlib.gauss_newton.hidden_layer import batch_norm_gram as batch_norm_gram
from gnlib.gauss_newton.hidden_layer import leaky_relu_gram as leaky_relu_gram
from gnlib.gauss_newton.linear import linear_gauss_newton as linear_gauss_newton
from gnlib.gauss_newton.linear import on_the_range as on_the_range
from gnlib.gauss_newton.linear import partial_products as partial_products
from gnlib.gauss_newton.module import gauss_newton_gram as gauss_newton_gram
from gnlib.gauss_newton.module import jacobian_blocks as jacobian_blocks

"""Bounds on the condition number, one file a section of a paper; every function names its source."""

from gnlib.bounds.batch_normalization import batch_norm_bound as batch_norm_bound
from gnlib.bounds.batch_normalization import batch_norm_limit as batch_norm_limit
from gnlib.bounds.batch_normalization import sharp_batch_norm as sharp_batch_norm
from gnlib.bounds.convolution import convolution_bound as convolution_bound
from gnlib.bounds.convolution import sharp_convolution as sharp_convolution
from gnlib.bounds.descent import gradient_descent_bound as gradient_descent_bound
from gnlib.bounds.functional_hessian import eq_18 as eq_18
from gnlib.bounds.functional_hessian import functional_hessian_norm as functional_hessian_norm
from gnlib.bounds.functional_hessian import hessian_condition as hessian_condition
from gnlib.bounds.initialisation import asymptotic_bound as asymptotic_bound
from gnlib.bounds.initialisation import lemma_6 as lemma_6
from gnlib.bounds.initialisation import lemma_7 as lemma_7
from gnlib.bounds.leaky_relu import leaky_relu_ends as leaky_relu_ends
from gnlib.bounds.leaky_relu import lemma_4 as lemma_4
from gnlib.bounds.leaky_relu import wide_leaky_relu_kernel as wide_leaky_relu_kernel
from gnlib.bounds.linear import lemma_1 as lemma_1
from gnlib.bounds.linear import lemma_2 as lemma_2
from gnlib.bounds.linear import lemma_2_terms as lemma_2_terms
from gnlib.bounds.linear import sharp_linear as sharp_linear
from gnlib.bounds.perturbation import sum_bounds as sum_bounds
from gnlib.bounds.perturbation import weyl as weyl
from gnlib.bounds.residual import kaiming_skip_limits as kaiming_skip_limits
from gnlib.bounds.residual import residual_bound as residual_bound
from gnlib.bounds.residual import skip_bounds as skip_bounds

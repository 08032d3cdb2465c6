"""Bounds on the condition number, one file a section of a paper; every function names its source."""

from gnlib.bounds.descent import gradient_descent_bound as gradient_descent_bound
from gnlib.bounds.initialisation import asymptotic_bound as asymptotic_bound
from gnlib.bounds.initialisation import lemma_6 as lemma_6
from gnlib.bounds.initialisation import lemma_7 as lemma_7
from gnlib.bounds.linear import lemma_1 as lemma_1
from gnlib.bounds.linear import lemma_2 as lemma_2
from gnlib.bounds.linear import lemma_2_terms as lemma_2_terms
from gnlib.bounds.linear import sharp_linear as sharp_linear
from gnlib.bounds.perturbation import sum_bounds as sum_bounds
from gnlib.bounds.perturbation import weyl as weyl

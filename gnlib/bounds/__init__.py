"""Bounds on the condition number, one file a section of a paper; every function names its source."""

from gnlib.bounds.linear import sharp_linear as sharp_linear
from gnlib.bounds.linear import zhao_lemma_1 as zhao_lemma_1
from gnlib.bounds.linear import zhao_lemma_2 as zhao_lemma_2
from gnlib.bounds.linear import zhao_lemma_2_terms as zhao_lemma_2_terms

"""Bounds at initialisation: the formulas of the paper."""

import math

import pytest
from gnbook.one_hidden_layer.bounds import asymptotic_bound, zhao_lemma_7


@pytest.mark.parametrize("t", [0.0, 0.5])
@pytest.mark.parametrize("d, m, k", [(4, 100, 9), (100, 36, 1), (9, 25, 16), (9, 4, 9)])
def test_lemma_7_is_its_formula_with_negative_differences_cut_at_zero(d, m, k, t):
    largest = 0.5 * (m**0.5 + k**0.5 + t) ** 2 + 0.25 * (m**0.5 + d**0.5 + t) ** 2
    smallest = 0.5 * max(m**0.5 - k**0.5 - t, 0) ** 2 + 0.25 * max(m**0.5 - d**0.5 - t, 0) ** 2
    bound = zhao_lemma_7(d, m, k, t, variance_v=0.25, variance_w=0.5, data=3.0)
    assert bound == pytest.approx(3 * largest / smallest if smallest else math.inf)
    if t == 0:
        assert asymptotic_bound(d, m, k, variance_v=0.25, variance_w=0.5, data=3.0) == bound

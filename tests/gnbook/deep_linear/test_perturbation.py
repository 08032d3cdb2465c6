"""Bounds on eigenvalues of sums: edges and refusals; the claims of appendix A try them on random matrices."""

import math

import pytest
import torch
from gnbook.deep_linear.perturbation import sum_bounds

SUMS = {  # the last two may be singular: of diag(2, -1), the sum with diag(0.5, 2) is positive definite
    "a term that is not definite": ([3.0, -1.0], [2.0, 4.0], (5 / 3, 7.0)),
    "two singular terms": ([1.0, 0.0], [1.0, 0.0], (1.0, math.inf)),
    "any order": ([2.0, -1.0], [2.0, 0.5], (2.5, math.inf)),
}


@pytest.mark.parametrize("name", SUMS)
def test_the_bounds_of_sums_of_singular_and_indefinite_terms(name):
    a, b, expected = SUMS[name]
    assert sum_bounds(torch.tensor(a), torch.tensor(b)) == pytest.approx(expected)


@pytest.mark.bad_input
@pytest.mark.parametrize("a, b", [([1.0, -1.0], [1.0, 0.5]), ([1.0, 0.5], [-2.0, 1.0])])
def test_the_bounds_of_a_sum_refuse_terms_whose_sum_is_never_positive_definite(a, b):
    with pytest.raises(ValueError, match="the bounds are for positive definite sums"):
        sum_bounds(torch.tensor(a), torch.tensor(b))

"""Bounds on eigenvalues of sums: the best of their kind, and what they refuse."""

import math

import numpy as np
import pytest
import torch
from gnbook.deep_linear.perturbation import sum_bounds, weyl

from tests.oracles import normal, orthogonal, spectrum


def eigenvalues(n, seed):
    return normal(n, seed=seed), normal(n, seed=seed + 1)


@pytest.mark.parametrize("n", [1, 2, 3, 6])
@pytest.mark.parametrize("seed", [0, 10, 20])
def test_weyl_is_the_best_of_all_pairs(n, seed):
    a, b = eigenvalues(n, seed)
    lower, upper = weyl(a, b)
    down_a, down_b = (v.sort(descending=True).values for v in (a, b))
    for q in range(1, n + 1):  # the paper counts from 1
        pairs = [(i, j) for i in range(1, n + 1) for j in range(1, n + 1)]
        above = [(down_a[i - 1] + down_b[j - 1]).item() for i, j in pairs if i + j - 1 == q]
        below = [(down_a[i - 1] + down_b[j - 1]).item() for i, j in pairs if i + j - n == q]
        assert upper[q - 1].item() == min(above)
        assert lower[q - 1].item() == max(below)


@pytest.mark.parametrize("seed", range(10))
def test_weyl_and_the_bounds_of_a_sum_hold_and_are_attained_by_commuting_terms(seed):
    n = 5
    a, b = (v**2 for v in eigenvalues(n, seed))
    one, other = (torch.diag(v) for v in (a, b))
    q = orthogonal(n, n, seed=seed)
    values = spectrum(one + q @ other @ q.T)
    lower, upper = weyl(a, b)
    assert (lower <= values + 1e-12).all()
    assert (values <= upper + 1e-12).all()
    bounds = sum_bounds(a, b)
    assert bounds.lower <= values[0] / values[-1] * (1 + 1e-12)
    assert values[0] / values[-1] <= bounds.upper * (1 + 1e-12)
    aligned = torch.diag(a.sort().values) + torch.diag(b.sort().values)
    assert bounds.upper == pytest.approx(np.linalg.cond(aligned.numpy()))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_bounds_of_a_sum_are_the_formula_of_the_paper(n):
    a, b = (v**2 for v in eigenvalues(n, 30))
    down_a, down_b = (np.sort(v.numpy())[::-1] for v in (a, b))
    mixed = [down_a[n - 1 - j] + down_b[j] for j in range(n)]
    upper = (down_a[0] + down_b[0]) / (down_a[-1] + down_b[-1])
    assert sum_bounds(a, b) == pytest.approx((max(mixed) / min(mixed), upper))


def test_the_bounds_of_a_sum_allow_a_term_that_is_not_definite():
    a, b = (torch.tensor(v, dtype=torch.float64) for v in ([3.0, -1.0], [2.0, 4.0]))
    assert sum_bounds(a, b) == (5.0 / 3.0, 7.0 / 1.0)


def test_the_bound_of_a_sum_of_two_singular_terms_is_infinite():
    a = torch.tensor([1.0, 0.0], dtype=torch.float64)
    assert sum_bounds(a, a) == (1.0, math.inf)


@pytest.mark.bad_input
@pytest.mark.parametrize("function", [weyl, sum_bounds])
@pytest.mark.parametrize("a, b", [(torch.ones(2), torch.ones(3)), (torch.eye(2), torch.eye(2))])
def test_eigenvalues_come_in_two_lists_of_the_same_length(function, a, b):
    with pytest.raises(ValueError, match=r"two lists of n eigenvalues were expected"):
        function(a, b)


@pytest.mark.bad_input
@pytest.mark.parametrize("a, b", [([1.0, -1.0], [1.0, 0.5]), ([1.0, 0.5], [-2.0, 1.0])])
def test_the_bounds_of_a_sum_refuse_terms_whose_sum_is_never_positive_definite(a, b):
    with pytest.raises(ValueError, match="the bounds are for positive definite sums"):
        sum_bounds(torch.tensor(a), torch.tensor(b))


def test_a_sum_that_may_be_singular_has_no_upper_bound():
    # diag(2, -1) and diag(0.5, 2) have a positive definite sum, diag(2, -1) and diag(2, 0.5) an indefinite one
    assert sum_bounds(torch.tensor([2.0, -1.0]), torch.tensor([2.0, 0.5])) == (2.5, math.inf)

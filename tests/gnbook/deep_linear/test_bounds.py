"""Product vectors bound the condition number from below; bounds on eigenvalues of sums at their edges."""

import math

import pytest
import torch
from gnbook.deep_linear.bounds import product_vector_bound
from gnbook.deep_linear.perturbation import sum_bounds, weyl

from gnlib import SecondMoment, condition_number, linear_gauss_newton, second_moment
from tests.oracles import network, normal, orthogonal


def case(widths):
    return network(widths, seed=1), second_moment(normal(12, widths[0], seed=2))


def test_product_vectors_are_close_below_the_condition_number():
    weights, moment = case((4, 6, 6, 3))
    value = condition_number(linear_gauss_newton(weights, moment)).value
    assert 0.9 * value <= product_vector_bound(weights, moment) <= value * (1 + 1e-9)


@pytest.mark.parametrize("widths", [(3, 2, 3), (4, 5, 3, 5, 4)])
def test_product_vectors_are_silent_about_a_singular_matrix(widths):
    assert product_vector_bound(*case(widths)) == 1


@pytest.mark.parametrize("widths", [(3, 4), (4, 6, 3), (4, 7, 6, 3)])
def test_product_vectors_see_the_range_of_the_data_only(widths):
    weights, z = network((widths[0] + 2, *widths[1:]), seed=5), normal(12, widths[0], seed=6)
    q = orthogonal(widths[0] + 2, widths[0], seed=7)
    expected = product_vector_bound([weights[0] @ q, *weights[1:]], second_moment(z))
    for moment in (second_moment(z @ q.T), SecondMoment.from_data(z @ q.T)):
        assert product_vector_bound(weights, moment) == pytest.approx(expected, rel=1e-8)


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


@pytest.mark.bad_input
@pytest.mark.parametrize("function", [weyl, sum_bounds])
@pytest.mark.parametrize("a, b", [(torch.ones(1), torch.ones(3)), (torch.eye(2), torch.eye(2))])
def test_eigenvalues_come_in_two_lists_of_the_same_length(function, a, b):
    with pytest.raises(ValueError, match=r"two lists of n eigenvalues were expected"):
        function(a, b)

"""Product vectors bound the condition number of a linear network from below."""

import pytest
from gnbook.deep_linear.bounds import product_vector_bound

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

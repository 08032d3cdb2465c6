"""The Gram matrix of a network with one hidden layer, against autograd and the literal sum of Kronecker products."""

import pytest
import torch
from gnbook.shared.hidden_layer import leaky_relu_gram
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from tests.gnbook.hidden_layers import (
    GOOD,
    X,
    assert_equal_to,
    assert_follows_the_order_of_samples_outputs_and_units,
    assert_takes_single_precision_and_parameters,
    case,
    large,
    problems,
    refused,
    special,
)
from tests.oracles import autograd_gram, leaky_relu_units, literal_eq_10, spectrum

SLOPES = [0.0, 0.01, 1.0, -0.5, 2.0]
slopes = pytest.mark.parametrize("slope", SLOPES)


def autograd(weights, x, slope):
    return autograd_gram(lambda v, w: functional.leaky_relu(x @ v.T, slope) @ w.T, weights, len(x))


@special
@slopes
def test_leaky_relu_is_autograd_on_special_data(kind, slope):
    weights, x = case((4, 6, 3, 9), kind)
    assert_equal_to(leaky_relu_gram(weights, x, slope), autograd(weights, x, slope))


@large
def test_the_literal_sum_of_eq_10(shape):
    weights, x = case(shape)
    gram = leaky_relu_gram(weights, x, 0.1)
    assert_equal_to(gram, literal_eq_10(leaky_relu_units(weights, x, 0.1), len(x)), 1e-12)
    assert torch.equal(gram, gram.T)


@settings(deadline=None, max_examples=50)
@given(problems(), st.sampled_from(SLOPES))
def test_leaky_relu_is_autograd_where_hidden_values_are_zero(problem, slope):
    weights, x = problem
    gram = leaky_relu_gram(weights, x, slope)
    assert_equal_to(gram, autograd(weights, x, slope), 1e-13)
    assert torch.equal(gram, gram.T)
    assert spectrum(gram)[-1] >= -1e-13 * spectrum(gram)[0]


@slopes
def test_the_derivative_at_zero_is_the_slope(slope):
    """As in torch; the hidden value of x = (1, 1) is zero, its derivative by V is slope * x."""
    gram = leaky_relu_gram([torch.tensor([[1, -1]]), torch.tensor([[3], [1]])], torch.ones(1, 2), slope)
    assert_equal_to(gram, 2 * slope**2 * torch.tensor([[9, 3], [3, 1]], dtype=torch.float64), 1e-14)


def test_samples_outputs_units_and_types_of_tensors():
    def gram(weights, x):
        return leaky_relu_gram(weights, x, 0.2)

    assert_follows_the_order_of_samples_outputs_and_units(gram)
    assert_takes_single_precision_and_parameters(gram)


@pytest.mark.bad_input
@refused
def test_weights_that_are_no_network_or_no_data_for_it_are_refused(weights, x, message):
    with pytest.raises(ValueError, match=message):
        leaky_relu_gram(weights, x, 0.1)


@pytest.mark.bad_input
@pytest.mark.parametrize("slope", [float("nan"), float("inf")])
def test_a_slope_that_is_not_finite_is_refused(slope):
    with pytest.raises(ValueError, match=f"slope is {slope}; a finite number was expected"):
        leaky_relu_gram(GOOD, X, slope)

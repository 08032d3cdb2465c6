"""The Gram matrix of a network with one hidden layer, against autograd and the literal sum of Kronecker products."""

import torch
from gnbook.shared.hidden_layer import leaky_relu_gram
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from tests.gnbook.hidden_layers import (
    assert_equal_to,
    case,
    large,
    problems,
)
from tests.oracles import autograd_gram, leaky_relu_units, literal_eq_10, spectrum

SLOPES = [0.0, 0.01, 1.0, -0.5, 2.0]


def autograd(weights, x, slope):
    return autograd_gram(lambda v, w: functional.leaky_relu(x @ v.T, slope) @ w.T, weights, len(x))


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

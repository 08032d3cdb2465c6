"""The Gram matrix of a network with one hidden layer, against the literal sum of Kronecker products."""

import torch
from gnbook.shared.hidden_layer import leaky_relu_gram

from tests.gnbook.hidden_layers import assert_equal_to, case, large
from tests.oracles import leaky_relu_units, literal_eq_10


@large
def test_the_literal_sum_of_eq_10(shape):
    weights, x = case(shape)
    gram = leaky_relu_gram(weights, x, 0.1)
    assert_equal_to(gram, literal_eq_10(leaky_relu_units(weights, x, 0.1), len(x)), 1e-12)
    assert torch.equal(gram, gram.T)

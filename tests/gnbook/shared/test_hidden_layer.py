"""The Gram matrix of a network with one hidden layer, against the literal sum of Kronecker products."""

import pytest
import torch
from gnbook.shared.hidden_layer import leaky_relu_gram

from tests.oracles import leaky_relu_units, literal_eq_10, network, samples


@pytest.mark.parametrize("shape", [(3, 2, 1, 513), (3, 4, 1, 1100), (2, 3, 4, 300), (3, 2, 600, 3), (7, 5, 11, 46)])
def test_the_literal_sum_of_eq_10(shape):
    """The matrix is built for 512 / k samples at a time."""
    d, m, k, n = shape
    weights, x = network((d, m, k), seed=1), samples(n, d, seed=2)
    gram, expected = leaky_relu_gram(weights, x, 0.1), literal_eq_10(leaky_relu_units(weights, x, 0.1), n)
    torch.testing.assert_close(gram, expected, rtol=0, atol=1e-12 * expected.abs().max().item())
    assert torch.equal(gram, gram.T)

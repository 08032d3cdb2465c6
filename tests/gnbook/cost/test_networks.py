"""Networks of the sizes that are in use, and their matrix by way of the whole Jacobian."""

import torch
from gnbook.cost.networks import ResNet, TextTransformer, cnn, contracted, count, patch_transformer, perceptron

import gnlib


def test_networks_have_the_shapes_that_they_say():
    for network in (perceptron(8), cnn(), patch_transformer(8)):
        assert network(torch.randn(2, 3, 16, 16)).shape == (2, 10)
    assert ResNet([1, 1, 1, 1]).eval()(torch.randn(2, 3, 40, 40)).shape == (2, 10)
    small = TextTransformer(words=50, width=64, layers=2, outputs=3)
    assert small(torch.randint(50, (2, 7))).shape == (2, 3)
    with torch.device("meta"):
        assert round(count(TextTransformer()) / 1e6) == 100


def test_the_direct_way_has_the_matrix_of_the_way_by_layers():
    torch.manual_seed(0)
    network, x = cnn().double(), torch.randn(3, 3, 16, 16, dtype=torch.float64)
    torch.testing.assert_close(contracted(network, x), gnlib.GaussNewton(network, x).gram())

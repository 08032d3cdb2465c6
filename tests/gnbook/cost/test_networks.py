"""The networks of the sizes that are in use; their numbers of parameters are in an example of theirs."""

import torch
from gnbook.cost.networks import PatchTransformer, ResNet, TextTransformer, cnn, count, perceptron


def test_networks_have_the_shapes_that_they_say():
    torch.manual_seed(0)
    for network in (ResNet([1, 1, 1, 1]), ResNet([1, 1, 1, 1], bottleneck=True, outputs=10)):
        assert network.eval()(torch.randn(2, 3, 40, 40)).shape == (2, 10)
    for network in (perceptron(8), cnn(), PatchTransformer(8)):
        assert network(torch.randn(2, 3, 16, 16)).shape == (2, 10)
    small = TextTransformer(words=50, width=64, layers=2, outputs=3)
    assert small(torch.randint(50, (2, 7))).shape == (2, 3)
    with torch.device("meta"):
        assert round(count(TextTransformer()) / 1e6) == 100

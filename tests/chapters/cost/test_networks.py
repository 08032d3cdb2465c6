"""The networks of the sizes that are in use; their numbers of parameters are in an example of theirs."""

import torch

from gnlib.chapters.cost.networks import ResNet, TextTransformer


def test_networks_have_the_shapes_that_they_say():
    torch.manual_seed(0)
    for network in (ResNet([1, 1, 1, 1]), ResNet([1, 1, 1, 1], bottleneck=True, outputs=10)):
        assert network.eval()(torch.randn(2, 3, 40, 40)).shape == (2, 10)
    small = TextTransformer(words=50, width=64, layers=2, outputs=3)
    assert small(torch.randint(50, (2, 7))).shape == (2, 3)
    with torch.device("meta"):
        assert round(sum(weight.numel() for weight in TextTransformer().parameters()) / 1e6) == 100

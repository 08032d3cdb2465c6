"""The networks of the guide: shapes, and what is drawn."""

import math
from functools import partial

import pytest
import torch
from gnbook.your_own_network.networks import (
    INITIALISATIONS,
    Transformer,
    cnn,
    group_norm,
    initialised,
    perceptron,
)
from torch import nn


@pytest.mark.parametrize(
    "network", [perceptron(2, 8), cnn(), cnn(group_norm, channels=(4, 8)), Transformer(), Transformer(pre=False)]
)
def test_they_take_images_and_return_ten_outputs(network):
    assert network(torch.randn(2, 3, 16, 16)).shape == (2, 10)


def test_kaiming_has_its_deviation_and_no_biases():
    for name, factor in (("Kaiming normal", 1), ("Kaiming / 4", 0.25), ("Kaiming x 4", 4)):
        net = initialised(cnn, INITIALISATIONS[name], 0)
        weight = net[6].weight  # 9 * 32 inputs, 64 outputs
        assert weight.std().item() == pytest.approx(factor * math.sqrt(2 / (9 * 32)), rel=0.03)
        assert not any(layer.bias.any() for layer in net if hasattr(layer, "bias"))


def test_orthogonal_rows_and_what_is_left_alone():
    net = initialised(Transformer, INITIALISATIONS["orthogonal"], 0)
    weight = net.head.weight
    assert torch.allclose(weight @ weight.T, 2 * torch.eye(10), atol=1e-5)
    torch.manual_seed(0)
    plain = Transformer()
    assert torch.equal(net.position, plain.position)
    same = initialised(Transformer, None, 0)
    assert all(torch.equal(a, b) for a, b in zip(same.parameters(), plain.parameters(), strict=True))


def test_normalisation_goes_where_it_is_said():
    """Before a branch it leaves the sum alone; after it the tokens are normalised."""
    pre, post = (
        initialised(partial(Transformer, pre=pre), None, 0).eval().blocks(3 * torch.randn(2, 16, 32))
        for pre in (True, False)
    )
    assert torch.allclose(post.mean(-1), torch.zeros(2, 16), atol=1e-5) and pre.mean(-1).abs().max() > 0.01
    assert isinstance(cnn(group_norm)[1], nn.GroupNorm)

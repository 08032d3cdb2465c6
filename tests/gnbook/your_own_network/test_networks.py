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


@pytest.mark.parametrize(
    ("name", "variance"),
    [
        ("Kaiming normal", 2 / 288),
        ("Kaiming / 4", 2 / 288 / 16),
        ("Kaiming x 4", 2 / 288 * 16),
        ("Xavier normal", 2 / (288 + 576)),
        ("orthogonal", 2 / 288),
        ("torch default", 1 / 288 / 3),
    ],
)
def test_initialisations_have_the_deviations_of_their_names(name, variance):
    net = initialised(cnn, INITIALISATIONS[name], 0)
    weight = net[6].weight  # 9 * 32 inputs, 9 * 64 outputs
    assert weight.std().item() == pytest.approx(math.sqrt(variance), rel=0.03)
    assert (net[6].bias == 0).all() == (name != "torch default")


def test_a_seed_draws_what_the_constructor_draws():
    torch.manual_seed(0)
    plain = Transformer()
    same, orthogonal = (initialised(Transformer, INITIALISATIONS[way], 0) for way in ("torch default", "orthogonal"))
    assert all(map(torch.equal, same.parameters(), plain.parameters()))
    assert torch.equal(orthogonal.position, plain.position)


def test_normalisation_goes_where_it_is_said():
    """Before a branch it leaves the sum alone; after it the tokens are normalised."""
    pre, post = (
        initialised(partial(Transformer, pre=pre), None, 0).eval().blocks(3 * torch.randn(2, 16, 32))
        for pre in (True, False)
    )
    assert torch.allclose(post.mean(-1), torch.zeros(2, 16), atol=1e-5) and pre.mean(-1).abs().max() > 0.01
    assert isinstance(cnn(group_norm)[1], nn.GroupNorm)

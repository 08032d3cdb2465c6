"""The networks of the quick start: shapes, and what their remedies change."""

import pytest
import torch
from gnbook.quick_start.networks import cnn, perceptron, transformer
from torch import nn


@pytest.mark.parametrize(
    "network",
    [perceptron(), perceptron(layer_norm=True), cnn(), cnn(group_norm=True), transformer(), transformer(std=0.02)],
)
def test_they_take_images_and_return_ten_outputs(network):
    assert network(torch.randn(2, 3, 16, 16)).shape == (2, 10)


def test_normalisations_leave_the_weights_as_they_are():
    for plain, normed in ((perceptron(), perceptron(layer_norm=True)), (cnn(), cnn(group_norm=True))):
        ours, theirs = (
            [layer.weight for layer in network if isinstance(layer, nn.Linear | nn.Conv2d)]
            for network in (plain, normed)
        )
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_weights_of_the_transformer_have_the_scale_that_is_asked_for():
    """Six to nine times below one over the root of the inputs, as the page says of 0.02."""
    for std in (None, 0.02):
        for name, weight in transformer(std=std).named_parameters():
            if weight.ndim > 1 and name != "position":
                assert weight.std().item() == pytest.approx(std or weight[0].numel() ** -0.5, rel=0.1)
    scales = [1 / (0.02 * p[0].numel() ** 0.5) for p in transformer().parameters() if p.ndim > 1]
    assert [round(f(scales)) for f in (min, max)] == [6, 9]

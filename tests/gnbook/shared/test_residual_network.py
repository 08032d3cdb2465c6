"""Residual networks for images: the published sizes, and their formula."""

from functools import partial

import pytest
import torch
from gnbook.shared.residual_network import ResidualBlock, ResidualNetwork
from torch import nn
from torch.nn import functional

from tests.gnbook.pruning.cases import seeded, size


# Sizes
@pytest.mark.parametrize(
    ("blocks", "millions"), [(3, "0.27"), (5, "0.46"), (7, "0.66"), (9, "0.85"), (18, "1.73")], ids=lambda v: str(v)
)
def test_residual_networks_have_the_published_numbers_of_parameters(blocks, millions):
    """He et al. 2016, table 6, for skips without weights, and 1.73 for its 1.7."""
    net = ResidualNetwork(blocks)
    skips = size(*(module.skip for module in net.layers if isinstance(module, ResidualBlock)))
    assert f"{(size(net) - skips) / 1e6:.2f}" == millions
    assert skips == 16 * 32 + 2 * 32 + 32 * 64 + 2 * 64
    convolutions = [m for m in net.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(convolutions) + 1 == 6 * blocks + 2


def test_residual_network_of_20_layers_to_the_last_parameter():
    assert size(ResidualNetwork(3)) == 269_722 + 2752


# Functions
def residual_by_hand(net, x):
    """Return the outputs of a residual network, from its tensors alone and in the order in which they were made."""
    tensors = list(net.state_dict().values())
    training = net.training

    def normalised(x, stride=1):
        weight, gain, shift, mean, variance, _ = (tensors.pop(0) for _ in range(6))
        y = functional.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        if training:
            mean, variance = y.mean((0, 2, 3)), y.var((0, 2, 3), correction=0)
        scale = gain / (variance + 1e-5).sqrt()
        return (y - mean[:, None, None]) * scale[:, None, None] + shift[:, None, None]

    x = normalised(x).clamp_min(0)
    while len(tensors) > 2:
        out, channels = tensors[0].shape[:2]
        stride = out // channels
        y = normalised(normalised(x, stride).clamp_min(0))
        x = (y + (normalised(x, stride) if stride == 2 else x)).clamp_min(0)
    weight, bias = tensors
    return x.mean((2, 3)) @ weight.mT + bias


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("training", [True, False])
def test_residual_network_is_its_formula(seed, training):
    make = partial(ResidualNetwork, 1 + seed % 3, 1 + seed % 5, 1 + seed % 4)
    net, x = seeded(make, seed)
    net.train(training)
    expected = residual_by_hand(net, x)
    torch.testing.assert_close(net(x), expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(("channels", "out", "stride"), [(2, 2, 1), (2, 3, 1), (2, 2, 2), (2, 4, 2)])
def test_a_skip_has_weights_where_the_shape_changes(channels, out, stride):
    block = ResidualBlock(channels, out, stride)
    assert block(torch.ones(2, channels, 8, 8)).shape == (2, out, 8 // stride, 8 // stride)
    assert (size(block.skip) > 0) == ((channels, 1) != (out, stride))

"""The networks of the chapter: their layers, and what they compute."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from gnlib.chapters.deep_nonlinear.chain import layers_of
from gnlib.chapters.deep_nonlinear.networks import plain_chain, residual_chain
from gnlib.models import linear_weights
from tests.strategies import gaussian

X = gaussian(0, 4, 3)


def draw():
    return torch.Generator().manual_seed(1)


def test_a_plain_chain_applies_layer_after_layer():
    first, second, last = linear_weights([3, 5, 6, 2], generator=draw())
    expected = (2 * (2 * X @ first.mT).relu() @ second.mT).relu() @ last.mT
    torch.testing.assert_close(plain_chain([3, 5, 6, 2], nn.ReLU, gain=2.0, generator=draw())(X), expected)


def test_normalisation_stands_before_the_activation():
    first, last = linear_weights([3, 5, 2], generator=draw())
    expected = functional.layer_norm(X @ first.mT, (5,)).tanh() @ last.mT
    torch.testing.assert_close(plain_chain([3, 5, 2], nn.Tanh, normalised=True, generator=draw())(X), expected)


def test_a_residual_chain_adds_its_branches():
    first, second, third, last = linear_weights([3, 5, 5, 5, 2], generator=draw())
    h = 2 * X @ first.mT
    h = h + 0.5 * 2 * h.tanh() @ second.mT
    h = h + 0.5 * 2 * h.tanh() @ third.mT
    network = residual_chain([3, 5, 5, 5, 2], nn.Tanh, factor=0.5, gain=2.0, generator=draw())
    torch.testing.assert_close(network(X), h.tanh() @ last.mT)


def test_the_layers_of_all_are_known():
    for network in (
        plain_chain([3, 5, 5, 2], nn.GELU, normalised=True, generator=draw()),
        residual_chain([3, 5, 5, 2], nn.GELU, factor=0.5, generator=draw()),
    ):
        assert [tuple(layer.features.shape) for layer in layers_of(network, X)] == [(4, 3), (4, 5), (4, 5)]


@pytest.mark.bad_input
@pytest.mark.parametrize("widths", [[3, 5, 6, 2], [3, 2]])
def test_skips_need_one_hidden_width(widths):
    with pytest.raises(ValueError, match="skips need hidden layers, all of one width"):
        residual_chain(widths, nn.Tanh, factor=1.0, generator=draw())

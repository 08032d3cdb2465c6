"""Fully connected networks: the module and its weights."""

from itertools import pairwise

import pytest
import torch
from gnbook.shared.fully_connected import FullyConnected, xavier_weights
from torch import nn

import gnlib


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("relu", [True, False])
def test_the_module_is_the_product_of_its_weights(seed, relu):
    generator = torch.Generator().manual_seed(seed)
    widths = torch.randint(1, 6, (2 + seed % 4,), generator=generator).tolist()
    weights = xavier_weights(widths, generator=generator)
    x = torch.randn(7, widths[0], generator=generator, dtype=torch.float64)
    h = x
    for w in weights[:-1]:
        h = (h @ w.mT).relu() if relu else h @ w.mT
    net = FullyConnected(weights, relu=relu, dtype=torch.float64)
    torch.testing.assert_close(net(x), h @ weights[-1].mT, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(net.weights(), weights, rtol=0, atol=0)
    if relu and len(weights) == 2:
        gram = gnlib.leaky_relu_gram(weights, x, 0.0)
        torch.testing.assert_close(gnlib.GaussNewton(net, x).gram(), gram, rtol=1e-10, atol=1e-10)


def test_xavier_normal_is_that_of_torch():
    ours = xavier_weights([300, 200], generator=torch.Generator().manual_seed(0))[0]
    theirs = nn.init.xavier_normal_(torch.empty(200, 300), generator=torch.Generator().manual_seed(1))
    assert ours.shape == theirs.shape
    assert ours.std().item() == pytest.approx(theirs.std().item(), rel=0.02)
    assert ours.std().item() == pytest.approx((2 / 500) ** 0.5, rel=0.02)


@pytest.mark.bad_input
@pytest.mark.parametrize("widths", [[3], [3, 0], [3, 2.5]])
def test_widths_that_are_none(widths):
    with pytest.raises(ValueError, match="give at least two integers from 1 on"):
        xavier_weights(widths, generator=torch.Generator())


def test_widths_chain():
    weights = xavier_weights([4, 7, 2], generator=torch.Generator())
    assert all(a.shape[0] == b.shape[1] for a, b in pairwise(weights))

"""The networks of the chapter, against torch's own batch normalisation and by their definition."""

import pytest
import torch
from gnbook.batch_normalization import networks
from torch import nn

import gnlib


def images(n=6):
    return torch.rand(n, 3, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_the_two_halves_make_the_whole():
    x = images()
    halves = networks.Half(3, subtract=False)(networks.Half(3, subtract=True)(x))
    torch.testing.assert_close(halves, nn.BatchNorm2d(3, affine=False, eps=1e-30).double()(x))


def test_kappa_of_the_linear_networks_against_modules():
    x = torch.rand(12, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = networks.linear_network(4, 6, 2, seed=0)
    layers = nn.Sequential(nn.Linear(4, 6, bias=False), nn.Identity(), nn.Linear(6, 2, bias=False))
    layers[0].weight, layers[2].weight = map(nn.Parameter, weights)
    assert networks.without_bn(weights, x) == pytest.approx(float(gnlib.condition_number(layers.double(), x)))
    layers[1] = nn.BatchNorm1d(6, affine=False, eps=1e-30).double()
    found = float(gnlib.condition_number(layers, x, mode="train"))
    assert networks.with_bn(weights, x) == pytest.approx(found)


def test_steps_to_a_tenth_of_the_loss_of_zero():
    net = nn.Linear(1, 1, bias=False).double()
    nn.init.zeros_(net.weight)
    one = torch.ones(1, 1).double()
    # each step at the rate 1/2 halves the error, and the loss falls by four: below a tenth after two
    assert networks.steps_to(net, one, one, rate=0.5) == 2
    nn.init.zeros_(net.weight)
    assert networks.steps_to(net, one, one, rate=0.0, most=3) == float("inf")

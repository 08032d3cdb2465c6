"""The small networks, and the Gauss-Newton blocks of their layers."""

import pytest
import torch
from gnbook.piecewise_linear_maps.networks import blocks, classifier, network

import gnlib
from tests.oracles import normal

X = normal(12, 5, seed=3)


def test_a_network_is_its_seed():
    net, again, other = (network([2, 3, 4], seed, 0.1) for seed in (0, 0, 1))
    assert [tuple(layer.weight.shape) for layer in net] == [(3, 2), (4, 3)]
    assert torch.equal(net[1].bias, again[1].bias) and not torch.equal(net[1].bias, other[1].bias)


def test_a_classifier_has_no_biases_and_a_last_layer_of_its_own():
    net = classifier(5, 0, 0.1, width=7)
    assert [layer.activation.slope for layer in net] == [0.1, 0.1, 1.0]
    assert [tuple(layer.weight.shape) for layer in net] == [(7, 5), (7, 7), (10, 7)]
    assert all(not layer.bias.any() and not layer.bias.requires_grad for layer in net)
    assert classifier(5, 0, 0.1, output=0.1)[-1].activation.slope == 0.1


def test_the_blocks_are_those_of_the_library_and_add_up():
    net = classifier(5, 1, 0.1)
    found = blocks(net, X)
    for index, block in enumerate(found):
        for other, layer in enumerate(net):
            layer.weight.requires_grad_(other == index)
        assert (block.gram - gnlib.GaussNewton(net, X).gram()).abs().max() < 1e-12 * block.gram.abs().max()
        assert block.kappa == pytest.approx(gnlib.condition_number(net, X).value, rel=1e-6)
    for layer in net:
        layer.weight.requires_grad_(True)
    whole = sum(block.gram for block in found)
    assert (whole - gnlib.GaussNewton(net, X).gram()).abs().max() < 1e-12 * whole.abs().max()

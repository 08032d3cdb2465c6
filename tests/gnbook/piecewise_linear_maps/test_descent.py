"""The small networks, the Gauss-Newton blocks of their layers, and gradient descent on one layer or on all of them."""

import pytest
import torch
from gnbook.piecewise_linear_maps.descent import descend, start
from gnbook.piecewise_linear_maps.networks import blocks, classifier
from gnbook.shared.training import half_squared_error, one_hot

import gnlib
from tests.oracles import normal

X, TARGETS = normal(12, 5, seed=3), one_hot(torch.arange(12) % 10, 10)
SLOPE = 0.1


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


def test_the_rate_is_that_of_the_layers_that_are_trained():
    net = classifier(5, 0, SLOPE)
    found = blocks(net, X)
    second, together = start(net, found, X, 2), start(net, found, X)
    largest = torch.linalg.eigvalsh(found[1].gram)[-1].item()
    assert second.rates == pytest.approx([0, 1 / largest, 0])
    whole = torch.linalg.eigvalsh(sum(block.gram for block in found))[-1].item()
    assert together.rates == pytest.approx([0.5 / whole] * 3) and whole > largest


@pytest.mark.parametrize("layer", [1, 2, 3, None])
def test_it_is_what_automatic_differentiation_does(layer):
    net = classifier(5, 0, SLOPE)
    run = start(net, blocks(net, X), X, layer)
    curves = descend([start(classifier(5, 1, SLOPE), blocks(net, X), X, 1), run], TARGETS, SLOPE, 20)
    for step in range(21):
        value = half_squared_error(net(X), TARGETS)
        assert abs(value.item() - curves[step, 1]) < 1e-9
        gradients = torch.autograd.grad(value, [part.weight for part in net])
        with torch.no_grad():
            for part, gradient, rate in zip(net, gradients, run.rates, strict=True):
                part.weight -= rate * gradient
    assert curves[-1, 1] < curves[0, 1]

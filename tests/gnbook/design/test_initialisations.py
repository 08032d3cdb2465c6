"""What networks begin with."""

import pytest
import torch
from gnbook.design.families import build
from gnbook.design.initialisations import NORM, SEARCHED, gained, initialised, unit_variance
from gnbook.design.layers import layers_of, weights_of
from gnbook.design.objectives import edge, log_time
from gnbook.design.trial import images
from gnbook.shared.training import half_squared_error
from gnbook.shared.tuning import constant_loss
from torch import nn

from tests.gnbook.design.helpers import condition

DATA = images(12, 0, torch.device("cpu"))


@pytest.fixture(scope="module")
def start():
    return initialised(build("MLP", seed=0), "Kaiming", DATA, seed=0)


@pytest.fixture(scope="module")
def found(start):
    return {name: find(start, DATA) for name, find in SEARCHED.items()}


@pytest.mark.parametrize("family", ["MLP", "CNN"])
def test_lsuv_has_a_variance_of_one_in_each_layer(family):
    network, seen = initialised(build(family, seed=0), "LSUV", DATA, seed=0), []
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            layer.register_forward_hook(lambda _module, _inputs, output: seen.append(output.var().item()))
    network(DATA.x)
    assert seen == pytest.approx([1.0] * len(weights_of(network)), abs=0.02)
    assert unit_variance(network, DATA.x) is network and not any(m._forward_pre_hooks for m in network.modules())


def test_each_search_improves_what_it_looks_at(start, found):
    layers, goal, none = layers_of(start, DATA.x), constant_loss(DATA.y, "mse") / 10, torch.zeros(3).double()

    def time(gains):
        return log_time(layers, gains.log(), DATA.y, goal)

    assert condition(layers.kernel(found["condition number"].log())) < 0.9 * condition(layers.kernel(none))
    assert time(found["forecast, product one"])[0] < time(none.exp())[0] - 0.1
    assert edge(time(found["common gain"])[1]) < 1e-4 < edge(time(none.exp())[1])
    both = [time(found[name]) for name in ("forecast", "common gain")]
    assert both[0][0] + edge(both[0][1]) < both[1][0] + edge(both[1][1])


def test_gradinit_keeps_the_gradient_within_its_bound(start, found):
    def norm(network):
        loss = half_squared_error(network(DATA.x[:8]), DATA.y[:8])  # two thirds, which it looks at
        gradients = torch.autograd.grad(loss, [*weights_of(network).values()])
        return sum(g.square().sum() for g in gradients).sqrt().item()

    assert norm(start) > 3 * NORM and norm(gained(build("MLP", seed=0), found["GradInit"], seed=0)) < 1.3 * NORM

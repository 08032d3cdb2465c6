"""Networks that are homogeneous in the weights of each layer."""

import pytest
import torch
from gnbook.design.families import FAMILIES, HELD_OUT, build
from gnbook.design.layers import weights_of
from torch import nn

from tests.strategies import gaussian

X = gaussian(0, 4, 3 * 16 * 16).view(4, 3, 16, 16)


@pytest.mark.parametrize("family", FAMILIES)
def test_doubled_weights_of_a_layer_double_the_outputs_or_leave_them(family):
    network = build(family, seed=1)
    with torch.no_grad():
        for layer in network.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                layer.bias.zero_()
        before = network(X)
        names = [*weights_of(network)]
        for name in names:
            weight = network.get_parameter(name)
            weight.mul_(2)
            factor = 1 if "Norm" in family and name != names[-1] else 2
            torch.testing.assert_close(network(X), factor * before, rtol=1e-6, atol=1e-9)
            weight.div_(2)
    assert before.shape == (4, 10) and len(names) <= 15


def test_another_seed_is_another_network():
    one, same, other = (build("MLP", seed=seed)(X) for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_half_of_the_families_are_held_out():
    assert len(set(HELD_OUT)) == 4 and set(HELD_OUT) < set(FAMILIES) and len(FAMILIES) == 8


@pytest.mark.bad_input
def test_a_family_that_is_not_known():
    with pytest.raises(ValueError, match="family is 'ViT'; one of MLP; wide and shallow"):
        build("ViT", seed=0)

"""Changes are what a user would make by hand, and leave the network and its inputs as they were."""

import copy

import pytest
import torch
from gnbook.your_own_network.changes import changes_of
from torch import nn

from gnlib.diagnosis.remarks import off_scale


def samples(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def by_name(module, x):
    return {change.what: change for change in changes_of(module, x)}


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def test_a_normalisation_after_each_hidden_layer_of_a_chain():
    inner = nn.Sequential(nn.Conv2d(4, 6, 3), nn.ReLU())
    layers = nn.Conv2d(2, 4, 3), nn.Tanh(), inner, nn.Flatten(), nn.Linear(24, 5), nn.Tanh(), nn.Linear(5, 3)
    net = nn.Sequential(*layers).double()
    x, before = samples(3, 2, 6, 6), copy.deepcopy(net)
    change = by_name(net, x)["add GroupNorm(1) after 0, 2.0 and LayerNorm after 4"]
    h = torch.tanh(nn.functional.group_norm(net[0](x), 1))
    h = torch.relu(nn.functional.group_norm(net[2][0](h), 1))
    h = torch.tanh(nn.functional.layer_norm(net[4](h.flatten(1)), (5,)))
    torch.testing.assert_close(change.module(x), net[6](h))
    assert str(net) == str(before)
    torch.testing.assert_close(net.state_dict(), before.state_dict(), rtol=0, atol=0)


NO_PLACE = {
    "normalised": nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 2)),
    "one unit": nn.Sequential(nn.Linear(3, 1), nn.ReLU(), nn.Linear(1, 2)),
    "no chain": nn.Linear(3, 2),
    "skips": nn.TransformerEncoderLayer(4, 2),
}


@pytest.mark.parametrize("net", NO_PLACE.values(), ids=NO_PLACE)
def test_no_normalisation_where_there_is_one_or_no_place_for_it(net):
    assert not [what for what in by_name(net, samples(5, 3)) if what.startswith("add ")]


def test_weights_off_scale_are_rescaled_and_others_are_not():
    net = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    with torch.no_grad():
        net[0].weight.mul_(1e-2)
        net[4].weight.zero_()  # as for a head that is to start at zero
    assert [*off_scale(net)] == ["0", "4"] and off_scale(net)["0"] < 0.01
    small = net[0].weight.clone()
    change = by_name(net, samples(5, 16))["rescale the weights of 0 to 1 / sqrt(inputs)"]
    expected = small / small.square().mean().sqrt() / 4
    torch.testing.assert_close(change.module[0].weight.detach(), expected.detach())
    assert torch.equal(net[0].weight, small) and torch.equal(change.module[2].weight, net[2].weight)
    assert not change.module[4].weight.any()


def test_layers_of_attention_are_counted():
    net = nn.TransformerEncoderLayer(16, 2, 32)
    with torch.no_grad():
        for p in filter(lambda p: p.ndim > 1, net.parameters()):
            nn.init.constant_(p, 1e-4)
    both = nn.Sequential(net, copy.deepcopy(net))
    change = by_name(both, samples(1, 3, 16))["rescale the weights of 8 layers to 1 / sqrt(inputs)"]
    assert not off_scale(change.module)


def test_means_of_both_signs_are_worth_centring():
    x = samples(50, 2)
    centred = (x - x.mean(0)) / x.std()
    change = by_name(nn.Linear(2, 1), centred + torch.tensor([1.0, -1.0]))["centre the inputs"]
    torch.testing.assert_close(change.x, centred)

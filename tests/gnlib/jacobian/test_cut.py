"""Samples that depend on each other are seen at the layers; where they do not, no gradient of all weights is taken."""

import pytest
import torch
from torch import nn

from gnlib.jacobian import structure
from gnlib.jacobian.columns import write_columns
from gnlib.jacobian.comparison import Comparison
from gnlib.jacobian.cut import pull_cut
from gnlib.jacobian.trial import network_of
from tests.gnlib.jacobian.helpers import D, K, Net, data, made


def cnn():
    layers = nn.Conv2d(1, 4, 2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(48, K)
    return nn.Sequential(nn.Unflatten(1, (1, 2, 3)), *layers)


def tokens():
    """The six inputs as tokens: all of all samples in rows, then by position first."""

    def between(self, h):
        h = self.first(h.reshape(-1, 1)).view(len(h), D, 4)
        return self.second(h.transpose(0, 1)).transpose(0, 1).tanh().sum(2)

    return Net(between, first=nn.Linear(1, 4), second=nn.Linear(4, 4))


@pytest.mark.parametrize("make", [Net, lambda: Net(zero_head=True), cnn, tokens], ids=["MLP", "zeros", "CNN", "tokens"])
def test_independent_samples_take_no_gradient_of_all_weights(make, monkeypatch):
    def refuse(*_):
        raise AssertionError("a gradient of all weights")

    monkeypatch.setattr(Comparison, "pull_all", refuse)
    net, x = made(make), data(12)
    network = network_of(net, x)
    assert network.vmapped and not network.coupled and network.structure is not None
    torch.testing.assert_close(network.known, net.double()(x.double()).detach(), rtol=1e-12, atol=1e-12)


def detached(self, h):
    """The mean over the batch less its own copy without gradient, which leaves the outputs alone."""
    return h + h.mean(0) - h.mean(0).detach()


def last_pair(self, h):
    return h + 1e-6 * (h - h.detach()).roll(1, 0) * (torch.arange(len(h)) == 7)[:, None]


@pytest.mark.parametrize("change", [detached, last_pair, None])
def test_a_derivative_that_other_samples_have_a_part_in_differs_at_the_layers(change):
    plain = network_of(made(Net), data(12))
    net = made(lambda: Net(change)) if change else plain.module
    weights = torch.randn(12, plain.outputs, generator=torch.Generator().manual_seed(1)).double()
    function = network_of(net, data(12), mode="train")
    together, alone = (
        pull_cut(function, plain.structure, function.parameters, function.x, weights, one_by_one=apart)
        for apart in (False, True)
    )
    torch.testing.assert_close(together.outputs, alone.outputs, rtol=1e-13, atol=1e-13)
    assert together.agrees_with(alone) == (change is None)


def test_a_layer_whose_gradients_are_small_is_compared_by_its_own_size():
    def forward(self, h, coupled=0.0):
        side = self.side(h)
        return h + 1e-6 * (side + coupled * (side - side.detach()).roll(1, 0))

    plain = network_of(made(lambda: Net(forward, side=nn.Linear(D, D))), data(12))
    net = made(lambda: Net(lambda self, h: forward(self, h, 1e-3), side=nn.Linear(D, D)))
    weights = torch.randn(12, plain.outputs, generator=torch.Generator().manual_seed(1)).double()
    function = network_of(net, data(12), mode="train")
    together, alone = (
        pull_cut(function, plain.structure, function.parameters, function.x, weights, one_by_one=apart)
        for apart in (False, True)
    )
    assert not together.agrees_with(alone)
    with pytest.raises(ValueError, match="The derivatives of the outputs of a sample depend on the other samples"):
        network_of(net, data(12))


@pytest.mark.parametrize("factor", [1.0, 1 + 1e-6])
def test_columns_of_layers_that_no_backward_pass_has_are_found(factor, monkeypatch):
    network = network_of(made(Net), data(12))

    def scaled(out, *others):
        write_columns(out, *others)
        out.mul_(factor)

    monkeypatch.setattr(structure, "write_columns", scaled)
    assert bool(structure.structure_of(network).uses) == (factor == 1)

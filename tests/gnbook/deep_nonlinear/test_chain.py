"""Features and derivatives of chains, against autograd's Jacobian and the library's own Gram matrix."""

import copy

import pytest
import torch
from gnbook.deep_nonlinear.chain import Skip, kernel, layers_of
from torch import nn

import gnlib
from tests.gnbook.deep_nonlinear.chains import chain, linear
from tests.strategies import gaussian

X = gaussian(1, 4, 3)
NESTED = nn.Sequential(
    linear(3, 5, 0, bias=True),
    nn.Sequential(nn.GELU(), nn.LayerNorm(5, elementwise_affine=False)),
    Skip(
        nn.Sequential(nn.ReLU(inplace=True), linear(5, 5, 1), Skip(nn.Sequential(nn.Tanh(), linear(5, 5, 2)), -2.0)),
        0.3,
    ),
    nn.ReLU(),
    linear(5, 2, 3, bias=True),
)


def test_layers_come_in_order_with_a_feature_of_ones_for_a_bias_and_make_the_kernel_of_the_library():
    layers = layers_of(NESTED, X)
    torch.testing.assert_close(kernel(layers), gnlib.GaussNewton(NESTED, X).gram(), rtol=1e-12, atol=1e-12)
    assert [tuple(f.shape) for f, _ in layers] == [(4, 4), (4, 5), (4, 5), (4, 6)]
    assert [tuple(g.shape) for _, g in layers] == [(4, 2, 5)] * 3 + [(4, 2, 2)]
    torch.testing.assert_close(layers[0].features, torch.cat([X, X.new_ones(4, 1)], 1))
    torch.testing.assert_close(layers[-1].derivatives, torch.eye(2, dtype=torch.float64).expand(4, 2, 2))
    torch.testing.assert_close(layers[-1].blocks, torch.eye(2, dtype=torch.float64).expand(4, 2, 2))


def test_a_network_in_single_precision_is_taken_as_it_is_and_left_so():
    network, kept = copy.deepcopy(NESTED).float(), X.clone()
    before = copy.deepcopy(network.state_dict())
    with torch.no_grad():
        layers = layers_of(network, X.float())
    torch.testing.assert_close(
        kernel(layers), kernel(layers_of(copy.deepcopy(network).double(), X.float().double())), rtol=0, atol=0
    )
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    layers_of(nn.Sequential(nn.ReLU(inplace=True), linear(3, 2, 0)), X)
    assert torch.equal(X, kept) and network[2].branch[0].inplace
    assert not network[0]._forward_hooks and all(p.grad is None for p in network.parameters())


def frozen():
    network = chain([3, 4, 2], nn.ReLU)
    network[0].weight.requires_grad_(False)
    return network


SAME = linear(3, 3, 0)
TIED = chain([3, 3, 3], nn.ReLU)
TIED[2].weight = TIED[0].weight


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "network, message",
    [
        (nn.Sequential(linear(3, 4, 0), nn.BatchNorm1d(4), linear(4, 2, 1)), "'1' is of type BatchNorm1d; covered"),
        (nn.Sequential(nn.LayerNorm(3), linear(3, 2, 1)), "module '0' is of type LayerNorm; covered"),
        (nn.Sequential(linear(3, 2, 0), nn.Tanh()), "ends in a module of type Tanh; leave out what follows"),
        (nn.Sequential(SAME, nn.ReLU(), SAME), "Two layers share their weights"),
        (TIED, "Two layers share their weights"),
        (frozen(), "Some parameters are frozen"),
    ],
)
def test_what_is_no_chain_is_refused(network, message):
    with pytest.raises(ValueError, match=message):
        layers_of(network, X)
    with pytest.raises(ValueError, match="samples in rows"):
        layers_of(NESTED, X[0])

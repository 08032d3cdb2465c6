"""The lower bound of the smallest eigenvalue from a linear head, and the heads that are refused."""

import copy

import pytest
import torch
from gnbook.deep_nonlinear.head import head_floor
from torch import nn

import gnlib
from tests.gnbook.deep_nonlinear.chains import chain, linear
from tests.strategies import gaussian

X = gaussian(0, 4, 3)


def smallest(network, x):
    return torch.linalg.eigvalsh(gnlib.GaussNewton(network, x).gram())[0].item()


def test_it_is_an_equality_where_nothing_else_trains():
    for bias in (False, True):
        network = nn.Sequential(nn.Flatten(), linear(6, 2, 0, bias=bias))
        x = gaussian(1, 4, 2, 3)
        assert head_floor(network, x, network[1]) == pytest.approx(smallest(network, x), rel=1e-10)


def test_it_leaves_the_network_as_it_is_and_sees_any_precision():
    network = chain([3, 9, 2], nn.Tanh, bias=True).float()
    before = copy.deepcopy(network.state_dict())
    found = head_floor(network, X.float(), network[-1])
    assert 0 < found <= smallest(network, X.float())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert network[0].weight.dtype == torch.float32 and not network[-1]._forward_hooks


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = linear(3, 3, 0)

    def forward(self, x):
        return self.head(self.head(x).tanh())


def frozen():
    network = chain([3, 4, 2], nn.ReLU)
    network[-1].weight.requires_grad_(False)
    return network


def tied():
    network = chain([3, 3, 3], nn.ReLU)
    network[-1].weight = network[0].weight
    return network


NETWORK = chain([3, 4, 2], nn.ReLU)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "network, head, message",
    [
        (NETWORK, linear(3, 2, 0), "no part of the network; pass one of its own layers, such as network"),
        (NETWORK, NETWORK[0], "not those of the head"),
        (nn.Sequential(NETWORK, nn.Tanh()), NETWORK[-1], "leave out what comes after it"),
        ((twice := Twice()), twice.head, "not those of the head, applied once"),
        ((stuck := frozen()), stuck[-1], "frozen or shared weights"),
        ((shared := tied()), shared[-1], "frozen or shared weights"),
    ],
)
def test_what_is_no_head_is_refused(network, head, message):
    with pytest.raises(ValueError, match=message):
        head_floor(network, X, head)

"""The families, and the parts of their kernels against automatic differentiation under multiplied weights."""

import copy

import pytest
import torch
from gnbook.design.families import FAMILIES, build
from gnbook.design.initialisations import kaiming
from gnbook.design.layers import FLOOR, layers_of, weights_of
from gnbook.design.search import with_gains
from torch import nn

from tests.gnbook.design.helpers import chain, jacobians, kernel
from tests.strategies import gaussian

X = gaussian(0, 5, 3 * 16 * 16).view(5, 3, 16, 16)


def started(family):
    return kaiming(build(family, seed=0), torch.Generator().manual_seed(0))


def logarithms(network):
    return 0.7 * gaussian(3, len(weights_of(network)))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_kernel_of_every_family_under_gains(family):
    network = started(family)
    layers, z = layers_of(network, X), logarithms(network)
    expected = kernel(with_gains(copy.deepcopy(network), z.exp()), X)
    found = layers.kernel(z)
    assert (found - expected).norm() < 1e-5 * expected.norm()
    outputs = with_gains(copy.deepcopy(network), z.exp())(X)
    torch.testing.assert_close(layers.scaled(z), outputs.detach(), rtol=1e-5, atol=1e-8)


def preconditioned(network, x, power):
    """From the same floor, taken parameter by parameter."""
    total = 0
    for jacobian in jacobians(network, x).values():
        squares = jacobian.square().mean(0) * len(jacobian) / len(x)
        roots = squares.clamp_min(FLOOR**2 * squares.mean()).sqrt()
        total = total + (jacobian / roots**power) @ jacobian.mT / len(x)
    return total


def test_the_kernel_of_adam_under_gains():
    network, x = chain([4, 6, 5, 2], bias=True, seed=1), gaussian(5, 3, 4)
    layers, z = layers_of(network, x, preconditioned=True), logarithms(network)
    other = with_gains(copy.deepcopy(network), z.exp())
    torch.testing.assert_close(layers.kernel(z), preconditioned(other, x, 1), rtol=1e-9, atol=1e-9)
    sums = torch.einsum("i,ijk->jk", (layers.steps_exponents @ z).exp(), layers.steps)
    torch.testing.assert_close(sums, preconditioned(other, x, 2), rtol=1e-9, atol=1e-9)


def test_how_far_each_parameter_moves():
    network, x, c = chain([4, 6, 2], bias=True, seed=1), gaussian(5, 3, 4), gaussian(6, 6)
    layers, z = layers_of(network, x), logarithms(network)
    other = with_gains(copy.deepcopy(network), z.exp())
    moves = [(j.mT @ c / len(x)).square().sum().item() for j in jacobians(other, x).values()]
    sizes = [torch.linalg.svdvals(p)[0].item() ** 2 if p.ndim == 2 else 0 for p in other.parameters()]
    expected = [move / size if size else 0 for move, size in zip(moves, sizes, strict=True)]
    assert layers.moved(z, c).tolist() == pytest.approx(expected, rel=1e-9)
    assert expected[0] > 0 and expected[1] == 0  # a bias of zero has no size to compare with


class Skip(nn.Module):
    def __init__(self):
        super().__init__()
        self.branch = chain([4, 4])

    def forward(self, x):
        return x + self.branch(x)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "network",
    [
        chain([4, 6, 2], nn.Tanh),
        nn.Sequential(Skip(), *chain([4, 2])),
        nn.Sequential(nn.Linear(4, 3), nn.ReLU()).double(),
    ],
    ids=["tanh", "skip", "biases"],
)
def test_a_network_that_is_not_homogeneous(network):
    with pytest.raises(ValueError, match=r"The network is not homogeneous in .*weight: doubled weights"):
        layers_of(network, gaussian(0, 5, 4))

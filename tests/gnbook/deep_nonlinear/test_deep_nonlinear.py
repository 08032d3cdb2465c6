"""Digits of the bound, and the networks of the chapter."""

import math

import mpmath
import pytest
import torch
from gnbook.deep_nonlinear.bound import chain_bound
from gnbook.deep_nonlinear.chain import Layer, kernel, layers_of
from gnbook.deep_nonlinear.networks import ACTIVATIONS, SHAPES, limit_kernel, network

from tests.oracles import relative
from tests.strategies import exact, gaussian


@pytest.mark.parametrize("angle", [1e-3, 1e-6, 1e-8, 1e-10])
def test_two_samples_that_are_nearly_equal_keep_their_digits(angle):
    """9 (1 - r s) at angles so small that r and s round to one, of norms that make up for each other."""
    features = exact([[1, 0], [3 * math.cos(angle), 3 * math.sin(angle)]])
    derivatives = exact([[3, 0], [math.cos(3 * angle), math.sin(3 * angle)]])[:, None]
    nothing = Layer(torch.zeros(2, 1).double(), torch.ones(2, 1, 1).double())
    ends = chain_bound([Layer(features, derivatives), nothing]).ends
    with mpmath.workdps(50):
        expected = float(9 * (1 - mpmath.cos(angle) * mpmath.cos(3 * angle)) / 2)
    assert ends.smallest.lower == pytest.approx(expected, rel=1e-6, abs=0)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_gain_keeps_the_variance(name):
    module, gain, dual = ACTIVATIONS[name]
    both, _ = dual(torch.eye(1, dtype=torch.float64))
    assert gain**2 * both.item() == pytest.approx(1, abs=1e-12)
    assert gain**2 * module()(gaussian(0, 10**6)).square().mean().item() == pytest.approx(1, abs=5e-3)


@pytest.mark.parametrize("name", ["ReLU", "GELU", "linear"])
def test_wide_networks_come_near_the_limit_of_their_own_shape(name):
    widths, x = [6, 700, 700, 1], gaussian(0, 4, 6)
    limits = {shape: limit_kernel(name, shape, widths, x) for shape in SHAPES}
    for shape in SHAPES:
        drawn = [network(name, shape, widths, generator=torch.Generator().manual_seed(seed)) for seed in range(4)]
        mean = torch.stack([4 * kernel(layers_of(net, x)) for net in drawn]).mean(0)
        apart = {other: relative(mean, limit) for other, limit in limits.items()}
        assert min(apart, key=apart.get) == shape and apart[shape] < 0.08

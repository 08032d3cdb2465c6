"""The bounds of a chain: numbers by hand, and networks of images."""

import math

import mpmath
import pytest
import torch
from gnbook.deep_nonlinear.bound import chain_bound, schur_ends
from gnbook.deep_nonlinear.chain import Layer, layers_of
from torch import nn

import gnlib
from tests.gnbook.deep_nonlinear.chains import chain
from tests.strategies import exact, gaussian


def test_one_layer_has_the_condition_number_of_its_samples():
    x = gaussian(0, 4, 6)
    s = torch.linalg.svdvals(x) ** 2
    for k in (1, 3):
        found = layers_of(chain([6, k], nn.Tanh), x)
        for ends in (schur_ends(found), chain_bound(found).ends):
            assert ends.condition == pytest.approx(((s[0] / s[-1]).item(),) * 2, rel=1e-12)
            assert ends.smallest == pytest.approx((s[-1].item() / 4,) * 2, rel=1e-12)


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


@pytest.mark.parametrize("kind, depth", [("white", 8), ("raw", 3)])
def test_for_wide_relu_networks_of_images_the_bound_is_within_ten_times_the_condition_number(kind, depth):
    x = gnlib.load("mnist", 40, stride=4)[0]
    x = gnlib.whiten(x) if kind == "white" else x
    network = chain([x.shape[1], *[400] * (depth - 1), 3], nn.ReLU, scales=[2**0.5] * depth, seed=1)
    kappa, ends = float(gnlib.condition_number(network, x)), chain_bound(layers_of(network, x)).ends
    assert kappa / 3 < ends.condition.lower <= kappa <= ends.condition.upper < 10 * kappa
    assert ends.condition.upper < schur_ends(layers_of(network, x)).condition.upper

"""The bounds of a chain: single numbers by hand, their sentences, and the reasons of silent layers."""

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


def with_weights(network, *weights):
    with torch.no_grad():
        for layer, weight in zip(network[::2], weights, strict=False):
            layer.weight.copy_(weight)
    return network


EQUAL, FEW = gaussian(0, 4, 6)[[0, 0, 2, 3]], "has features of rank {} on {} samples".format
SILENT = {
    "more samples than features": (chain([3, 4, 2], nn.Tanh, bias=True, seed=1), gaussian(0, 7, 3), {2: FEW(5, 7)}),
    "equal samples": (chain([6, 8, 8, 1], nn.Tanh, bias=True), EQUAL, {1: FEW(3, 4), 2: FEW(3, 4), 3: FEW(3, 4)}),
    "dead layers": (
        with_weights(chain([6, 8, 8, 2], nn.ReLU), torch.zeros(8, 6)),
        gaussian(0, 3, 6),
        {1: "is one that no output depends on", 2: "has no input other than zero", 3: "has no input other than zero"},
    ),
    "a narrow layer above": (
        chain([6, 8, 1, 3], nn.Identity),
        gaussian(0, 4, 6),
        {1: "reaches 1 of 3 outputs on sample 0", 3: FEW(1, 4)},
    ),
    "a sample that no unit is active on": (
        with_weights(chain([2, 2, 1], nn.ReLU), torch.eye(2), torch.ones(1, 2)),
        exact([[1, 0], [-1, -1]]),
        {1: "reaches 0 of 1 outputs on sample 1", 2: FEW(1, 2)},
    ),
}


@pytest.mark.parametrize("name", SILENT)
def test_layers_that_do_not_hold_the_smallest_eigenvalue_up_are_named(name):
    network, x, silent = SILENT[name]
    found = chain_bound(layers_of(network, x))
    assert found.ends.condition.upper == math.inf and silent.items() <= found.silent.items()
    assert all(f"layer {number} {reason}" in str(found) for number, reason in silent.items())


def test_layers_that_are_silent_alone_may_do_together():
    """Each of two layers is blind to one sample."""
    first, second = (Layer(row.diag(), row[:, None, None] * 1.0) for row in (exact([1, 0]), exact([0, 1])))
    last = Layer(torch.zeros(2, 1).double(), torch.ones(2, 1, 1).double())
    found = chain_bound([first, second, last])
    assert set(found.silent) == {1, 2, 3} and found.ends.condition == pytest.approx((1, 1))


def test_a_sample_of_zeros_does_not_disturb_the_others():
    features = torch.cat([torch.zeros(1, 5).double(), gaussian(0, 3, 5)])
    layer = Layer(features, gaussian(1, 4, 2, 30))
    one = Layer(torch.eye(4).double(), torch.eye(2).double().expand(4, 2, 2))
    rest = chain_bound([Layer(features[1:], layer.derivatives[1:]), Layer(torch.eye(3).double(), one.derivatives[1:])])
    found = chain_bound([layer, one])
    assert found.ends.smallest.lower == pytest.approx(0.25, rel=1e-12)  # of the sample of zeros, by the last layer
    assert found.ends.largest.upper == pytest.approx(0.75 * rest.ends.largest.upper, rel=0.3)


@pytest.mark.parametrize("kind, depth", [("white", 8), ("raw", 3)])
def test_for_wide_relu_networks_of_images_the_bound_is_within_ten_times_the_condition_number(kind, depth):
    x = gnlib.load("mnist", 40, stride=4)[0]
    x = gnlib.whiten(x) if kind == "white" else x
    network = chain([x.shape[1], *[400] * (depth - 1), 3], nn.ReLU, scales=[2**0.5] * depth, seed=1)
    kappa, ends = float(gnlib.condition_number(network, x)), chain_bound(layers_of(network, x)).ends
    assert kappa / 3 < ends.condition.lower <= kappa <= ends.condition.upper < 10 * kappa
    assert ends.condition.upper < schur_ends(layers_of(network, x)).condition.upper

"""Chains, their bounds, networks of the chapter, and the tangent kernel of infinitely wide ones."""

import math

import mpmath
import pytest
import torch
from gnbook.deep_nonlinear.bound import chain_bound, schur_ends
from gnbook.deep_nonlinear.chain import Layer, Skip, kernel, layers_of
from gnbook.deep_nonlinear.duals import leaky_relu
from gnbook.deep_nonlinear.head import head_floor
from gnbook.deep_nonlinear.networks import ACTIVATIONS, SHAPES, limit_kernel, network
from gnbook.deep_nonlinear.wide_limit import standard_factors, wide_kernel
from gnbook.deep_nonlinear.width import (
    hidden_layer_kernel,
    smallest_shares,
)
from torch import nn

import gnlib
from tests.gnbook.deep_nonlinear.chains import chain, linear
from tests.gnbook.deep_nonlinear.wide_helpers import (
    KAIMING,
    jacobian_kernel,
)
from tests.strategies import exact, gaussian

SAMPLES = gaussian(1, 4, 3)
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
    layers = layers_of(NESTED, SAMPLES)
    torch.testing.assert_close(kernel(layers), gnlib.GaussNewton(NESTED, SAMPLES).gram(), rtol=1e-12, atol=1e-12)
    assert [tuple(f.shape) for f, _ in layers] == [(4, 4), (4, 5), (4, 5), (4, 6)]
    assert [tuple(g.shape) for _, g in layers] == [(4, 2, 5)] * 3 + [(4, 2, 2)]
    torch.testing.assert_close(layers[0].features, torch.cat([SAMPLES, SAMPLES.new_ones(4, 1)], 1))
    torch.testing.assert_close(layers[-1].derivatives, torch.eye(2, dtype=torch.float64).expand(4, 2, 2))
    torch.testing.assert_close(layers[-1].blocks, torch.eye(2, dtype=torch.float64).expand(4, 2, 2))


TIED = chain([3, 3, 3], nn.ReLU)
TIED[2].weight = TIED[0].weight


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


def smallest(network, x):
    return torch.linalg.eigvalsh(gnlib.GaussNewton(network, x).gram())[0].item()


def test_it_is_an_equality_where_nothing_else_trains():
    for bias in (False, True):
        network = nn.Sequential(nn.Flatten(), linear(6, 2, 0, bias=bias))
        x = gaussian(1, 4, 2, 3)
        assert head_floor(network, x, network[1]) == pytest.approx(smallest(network, x), rel=1e-10)


X = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def drawn(activation, shape, widths, seed=0):
    return network(activation, shape, widths, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_gain_keeps_the_variance(name):
    module, gain, dual = ACTIVATIONS[name]
    both, _ = dual(torch.eye(1, dtype=torch.float64))
    assert gain**2 * both.item() == pytest.approx(1, abs=1e-12)
    values = torch.randn(10**6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert gain**2 * module()(values).square().mean().item() == pytest.approx(1, abs=5e-3)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_network_does_what_its_shape_says(name, shape):
    net = drawn(name, shape, [6, 5, 5, 5, 2])
    first, second, third, last = (m.weight for m in net.modules() if isinstance(m, nn.Linear))
    act, factor = ACTIVATIONS[name].module(), SHAPES[shape]
    z = X @ first.mT
    for weight in (second, third):
        if shape == "LayerNorm":
            z = (z - z.mean(1, keepdim=True)) / (z.var(1, keepdim=True, correction=0) + 1e-5).sqrt()
        step = act(z) @ weight.mT
        z = z + factor(4) * step if factor else step
    if shape == "LayerNorm":
        z = (z - z.mean(1, keepdim=True)) / (z.var(1, keepdim=True, correction=0) + 1e-5).sqrt()
    torch.testing.assert_close(net(X), act(z) @ last.mT, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["ReLU", "GELU", "linear"])
def test_wide_networks_come_near_the_limit_of_their_own_shape(name):
    widths = [6, 700, 700, 1]
    limits = {shape: limit_kernel(name, shape, widths, X) for shape in SHAPES}
    for shape in SHAPES:
        mean = torch.stack([4 * kernel(layers_of(drawn(name, shape, widths, seed), X)) for seed in range(4)]).mean(0)
        apart = {other: ((mean - limit).norm() / limit.norm()).item() for other, limit in limits.items()}
        assert min(apart, key=apart.get) == shape and apart[shape] < 0.08


RELU = leaky_relu(0.0)
POINTS = gaussian(0, 5, 4)


def test_layers_add_up_and_linear_ones_repeat_the_gram_matrix():
    parts = [wide_kernel(POINTS, RELU, factors, gain=KAIMING) for factors in ([1.0, 0, 0], [0, 2.0, 0], [0, 0, 3.0])]
    assert torch.allclose(sum(parts), wide_kernel(POINTS, RELU, [1.0, 2.0, 3.0], gain=KAIMING))
    assert torch.allclose(wide_kernel(POINTS, RELU, [2.0], gain=3.0), 2 * 9 / 4 * POINTS @ POINTS.mT)
    assert torch.allclose(wide_kernel(POINTS, leaky_relu(1.0), [1.0] * 6, gain=1.0), 6 / 4 * POINTS @ POINTS.mT)
    scaled = [wide_kernel(POINTS, RELU, [1.0] * 4, gain=gain) for gain in (0.5, 2.0)]
    assert torch.allclose(scaled[1], 4.0**8 * scaled[0])
    assert standard_factors([4, 9, 2], 3.0) == [4 / 9, 1.0]


def generator():
    return torch.Generator().manual_seed(0)


def test_shares_are_those_of_the_kernel_by_the_hidden_weights():
    found = smallest_shares(POINTS, 50, 1, generator=generator())[0].item()
    hidden = torch.randn(50, 4, generator=generator(), dtype=torch.float64)
    whole = jacobian_kernel([hidden, gaussian(2, 1, 50).sign()], POINTS, torch.relu)
    values = (hidden @ POINTS.mT).relu()
    kernel = whole - values.mT @ values  # what the output layer adds
    limit = 50 * torch.linalg.eigvalsh(hidden_layer_kernel(POINTS))[0]
    assert found == pytest.approx((torch.linalg.eigvalsh(kernel)[0] / limit).item(), rel=1e-8)

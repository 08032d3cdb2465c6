"""Linear networks: weights at initialisation, and outputs."""

from itertools import pairwise

import pytest
import torch

from gnlib import linear_network, linear_weights
from tests.oracles import network, normal


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_weights_are_out_by_in_with_the_input_layer_first():
    weights = linear_weights([5, 2, 7, 1], generator=seeded())
    assert [tuple(w.shape) for w in weights] == [(2, 5), (7, 2), (1, 7)]
    assert {w.dtype for w in weights} == {torch.float64}


@pytest.mark.parametrize("fan_in, out", [(50, 2000), (1000, 100)])
def test_weights_have_variance_one_over_their_inputs(fan_in, out):
    (w,) = linear_weights([fan_in, out], generator=seeded())
    deviations = 5 * (2 / w.numel()) ** 0.5
    assert abs(w.var().item() * fan_in - 1) < deviations
    assert abs(w.mean().item()) * fan_in**0.5 < deviations


def test_layers_are_independent_and_follow_the_generator():
    first = linear_weights([4, 4, 4], generator=seeded(1))
    again = linear_weights([4, 4, 4], generator=seeded(1))
    other = linear_weights([4, 4, 4], generator=seeded(2))
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], other[0])


@pytest.mark.parametrize("skip", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("widths", [(3, 2), (4, 2, 5), (1, 3, 1, 2)])
def test_outputs_are_those_of_torch_layers(widths, skip):
    weights, x = network(widths, seed=1), normal(6, widths[0], seed=2)
    layers = [torch.nn.Linear(i, o, bias=False) for i, o in pairwise(widths)]
    for layer, w in zip(layers, weights, strict=True):
        layer.weight.data = w.clone()
        layer.weight.data.diagonal().add_(skip)
    torch.testing.assert_close(linear_network(weights, x, skip), torch.nn.Sequential(*layers)(x))


def test_the_skip_leaves_the_weights_as_they_were():
    weights = network((3, 3), seed=3)
    before = weights[0].clone()
    linear_network(weights, normal(2, 3, seed=4), 1.0)
    assert torch.equal(weights[0], before)


@pytest.mark.bad_input
@pytest.mark.parametrize("widths", [[], [3], [3, 0], [-1, 2], [3, 2.0], [3, "2"], [None, 2]])
def test_widths_are_integers_from_one_on(widths):
    with pytest.raises(ValueError, match="give at least two integers from 1 on") as error:
        linear_weights(widths, generator=seeded())
    assert str(widths) in str(error.value)

"""Zhao 2024, figures 6 and 23: their statements on width and slope; and the limit of many units."""

import math
from statistics import median

import pytest
import torch
from gnbook.leaky_relu.bounds import leaky_relu_ends, wide_leaky_relu_kernel, zhao_lemma_4
from gnbook.shared.hidden_layer import leaky_relu_gram
from hypothesis import given
from hypothesis import strategies as st

from gnlib import linear_weights
from tests.gnbook.leaky_relu.helpers import condition
from tests.oracles import ends
from tests.strategies import exact, gaussian


def white_networks(n, d, m, k):
    """Return three networks, each with n white samples."""
    x = n**0.5 * torch.eye(n, d).double()
    return [(linear_weights([d, m, k], generator=torch.Generator().manual_seed(seed)), x) for seed in range(3)]


@pytest.mark.claim("Figure 6, growth with the width", verdict="fails")
def test_for_many_white_samples_it_grows_from_as_many_units_to_a_few_times_as_many():
    previous = 0
    for m in (200, 400, 800):
        bounds = [leaky_relu_ends(*network, 0.01).condition for network in white_networks(200, 240, m, 2)]
        lower, upper = map(median, zip(*bounds, strict=True))
        assert previous < lower
        previous = upper


@pytest.mark.claim("Figure 6, tightness with the width", verdict="holds if")
def test_the_bound_closes_up_on_the_condition_number_from_as_many_units_as_samples_on():
    n, ratios = 50, []
    for m in (n, 2 * n, 4 * n, 20 * n, 200 * n):
        each = []
        for network in white_networks(n, 60, m, 3):
            low, high = ends(leaky_relu_gram(*network, 0.01))
            each.append(zhao_lemma_4(*network, 0.01).first * low / high)
        ratios.append(median(each))
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[0] > 100 and 1 <= ratios[-1] < 1.05


@pytest.mark.claim("Figure 23, smaller slopes", verdict="fails")
@given(st.integers(0, 98).map(lambda percent: percent / 100))
def test_for_two_white_samples_and_one_unit_a_smaller_slope_is_worse(slope):
    v, w, x = exact([[1, -1]]), exact([[1]]), torch.eye(2).double()
    (true, rank), (above, _) = (condition(v, w, x, a) for a in (slope, slope + 0.01))
    if slope == 0:
        assert rank == 1  # the second sample is lost
        return
    root = math.sqrt((2 + 2 * slope**2) ** 2 - 12 * slope**2)
    assert true == pytest.approx((2 + 2 * slope**2 + root) / (2 + 2 * slope**2 - root), rel=1e-9)
    assert true > above


@pytest.mark.claim("Wide limit", verdict="holds")
@pytest.mark.parametrize("slope", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("n, d", [(4, 6), (6, 3)])
def test_the_condition_number_of_a_very_wide_network_is_that_of_the_kernel(n, d, slope):
    x, errors = gaussian(n, n, d), []
    smallest, largest = ends(wide_leaky_relu_kernel(x, slope))
    for m in (2_000, 200_000):
        weights = linear_weights([d, m, 2], generator=torch.Generator().manual_seed(0))
        low, high = ends(leaky_relu_gram(weights, x, slope))
        errors.append(abs(high / low / (largest / smallest) - 1))
        if n > d and slope == 1:  # both are singular
            assert abs(low) < 1e-12 * high and abs(smallest) < 1e-12 * largest
            errors[-1] = 0.01 / m
    assert errors[1] < 0.05 and errors[1] < errors[0]

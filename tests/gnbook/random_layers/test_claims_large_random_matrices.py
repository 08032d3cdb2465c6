"""Riedi 2022, section 6.2, statements 33 to 35: singular values of large random matrices."""

import math

import numpy as np
import pytest
import scipy
import torch
from gnbook.random_layers import matrices as rm
from hypothesis import given
from hypothesis import strategies as st

from tests.gnbook.random_layers.helpers import GRID, LEVEL, distance, draw, noise, tracy_widom
from tests.oracles import identity
from tests.strategies import exact, instances, seeds


@pytest.mark.claim("Riedi Theorem 33", verdict="holds if")
@pytest.mark.parametrize("law, bias", [("gaussian", 0.08), ("uniform", 0.14)])
def test_over_the_root_of_two_the_largest_eigenvalue_follows_tracy_and_widom(law, bias):
    count, (centre, scale) = 1500, rm.symmetric_scaling(60)
    t = rm.extremes(draw(60, count, law))
    for values in (t.tau_largest, -t.tau_smallest):
        assert distance((values - centre) / scale) < bias + noise(count)
        assert distance((values - centre) / scale * 2**0.5) > 0.2


@pytest.mark.claim("Riedi Eq. 106", verdict="holds if")
def test_an_interval_that_shrinks_by_that_rate_has_a_probability_below_one():
    n, count = 60, 1500
    z = ((rm.extremes(draw(n, count)).tau_largest - math.sqrt(8 * n)) * n ** (1 / 6)).numpy()
    for constant in (1.0, 3.0, 6.0):
        low, high = np.interp([-constant / 2**0.5, constant / 2**0.5], GRID, tracy_widom())
        share = np.mean(np.abs(z) <= constant)
        assert abs(share - (high - low)) < 0.1 + 2 * noise(count)
        assert (share > 0.95) == (constant == 6)


@pytest.mark.claim("Riedi Eq. 107 and 108", verdict="holds")
@pytest.mark.parametrize("law", rm.LAWS)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_both_ends_have_one_law_and_are_not_independent(n, law):
    t = rm.extremes(draw(n, 3000, law))
    assert scipy.stats.ks_2samp(t.tau_largest.numpy(), -t.tau_smallest.numpy()).pvalue > LEVEL
    correlation = torch.corrcoef(torch.stack([t.tau_largest, -t.tau_smallest]))[0, 1].item()
    assert correlation < -0.1  # that of three thousand independent pairs is closer to zero


@pytest.mark.claim("Riedi Theorem 34", verdict="holds if")
@instances
@given(st.integers(1, 6), seeds, st.sampled_from(rm.LAWS), st.floats(0, 3))
def test_entries_with_a_density_give_distinct_singular_values_that_grow_as_stated(n, seed, law, skip):
    matrix = draw(n, 1, law, seed)[0]
    before, after = torch.linalg.svdvals(matrix), torch.linalg.svdvals(matrix + skip * identity(n))
    layer = rm.extremes(matrix)
    assert n == 1 or (before[:-1] - before[1:]).min() > 1e-12 * before[0]
    growth, slack = after**2 - before**2, 1e-12 * (before[0] + skip) ** 2
    assert (growth >= skip * layer.tau_smallest + skip**2 - slack).all()
    assert (growth <= skip * layer.tau_largest + skip**2 + slack).all()


@pytest.mark.claim("Riedi Theorem 34", verdict="holds if")
@pytest.mark.parametrize("g", [-1.3, 0.2, 2.0])
def test_jointly_gaussian_entries_without_a_density_can_repeat_singular_values(g):
    singular = torch.linalg.svdvals(g * identity(2))  # g times the identity, g normal
    assert singular[0] == singular[1]


@pytest.mark.claim("Riedi Theorem 34", verdict="holds if")
def test_a_negative_skip_breaks_the_growth():
    matrix, skip = exact([[1, 0], [0, -0.5]]), -1.0
    before, after = torch.linalg.svdvals(matrix), torch.linalg.svdvals(matrix + skip * identity(2))
    lower = skip * rm.extremes(matrix).tau_smallest + skip**2
    assert (after**2 - before**2)[1] == -0.25 and lower == 2


@pytest.mark.claim("Riedi Theorem 35", verdict="holds")
def test_the_largest_singular_value_and_its_law():
    count, (mu, q) = 1500, rm.singular_scaling(60)
    y = (torch.linalg.svdvals(draw(60, count))[:, 0] ** 2 - mu) / q
    assert distance(y) < 0.03 + noise(count)
    assert distance(y / 2**0.5) > 0.1 and distance(y * 2**0.5) > 0.1
    family = draw(900, 1)[0]  # one infinite family, larger and larger pieces
    errors = [abs(torch.linalg.matrix_norm(family[:n, :n], 2).item() / math.sqrt(n) - 2) for n in (20, 900)]
    assert errors[1] < 0.03


@pytest.mark.claim("Riedi Theorem 35, bounds of its constants", verdict="holds")
def test_the_constants_are_below_their_simple_bounds():
    for n in (*range(2, 400), 10**4, 10**8):
        mu, q = rm.singular_scaling(n)
        steps = (q, math.sqrt(4 * n) * 2 ** (1 / 3) * (n - 1) ** (-1 / 6), 2**1.5 * n ** (1 / 3))
        assert mu < 4 * n and steps[0] < steps[1] <= steps[2] * (1 + 1e-12)


@pytest.mark.claim("Riedi Figure 5, ratio", verdict="holds")
def test_the_ratio_tends_to_the_root_of_two():
    spread = []
    for n, count in ((10, 2000), (40, 1000), (250, 30)):
        layer = rm.extremes(draw(n, count))
        ratio = layer.tau_largest / layer.largest
        assert ratio.max() <= 2
        spread.append((ratio / 2**0.5 - 1).abs().mean().item())
        if n == 10:
            assert ((ratio > 0.6 * 2**0.5) & (ratio < 1.4 * 2**0.5)).double().mean() > 0.98
    assert spread[0] > 2 * spread[1] > 2 * spread[2] and spread[2] < 0.02

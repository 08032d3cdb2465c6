"""Riedi 2022, figure 8: toys with a skip and without."""

import numpy as np
import pytest
import torch

from gnlib.chapters.piecewise_linear_maps.one_layer import layer_factors
from gnlib.chapters.shared.piecewise_linear import Layer
from tests.chapters.piecewise_linear_maps.helpers import pseudo_condition, singular_values
from tests.strategies import exact, gaussian


def toy(seed, rhos):
    """The network of Eq. 158: singular values of MD for each weight of the skip."""
    draw = iter(range(1000 * seed, 1000 * seed + 1000))
    weights = [gaussian(next(draw), 6, d) for d in (2, 6, 6, 6)]
    biases, x = [gaussian(next(draw), 6) for _ in weights], gaussian(next(draw), 1, 2)
    rows = []
    for rho in rhos:
        layers = [
            Layer(w, b, 0.1, rho if i == 2 else 0.0) for i, (w, b) in enumerate(zip(weights, biases, strict=True))
        ]
        rows.append(singular_values(layer_factors(layers, 1, x).product[0]))
    return torch.stack(rows)


@pytest.mark.claim("Riedi Figure 8, singular values", verdict="fails")
def test_one_unit_of_negative_weight_loses_by_the_skip():
    values = [singular_values(exact([[-1]]) + rho * torch.eye(1).double()).item() for rho in (0.0, 0.25, 0.5, 0.75)]
    assert values == [1, 0.75, 0.5, 0.25]


@pytest.mark.claim("Riedi Figure 8, singular values", verdict="fails")
def test_of_forty_toys_few_have_a_smallest_singular_value_that_always_grows():
    runs = [toy(seed, np.linspace(0, 1, 51).tolist()) for seed in range(40)]
    always = sum(bool((run[:, -1].diff() >= 0).all()) for run in runs)
    more = sum(bool(run[-1, -1] > run[0, -1]) for run in runs)
    assert always <= 8 and more >= 28


@pytest.mark.claim("Riedi Figure 8, condition number", verdict="fails")
def test_two_units_where_the_skip_hurts():
    values = [pseudo_condition(exact([[1, 0], [0, -1]]) + rho * torch.eye(2).double()) for rho in (0.0, 0.5, 0.9)]
    assert values == pytest.approx([1, 3, 19])


@pytest.mark.claim("Riedi Figure 8, condition number", verdict="fails")
def test_of_forty_toys_few_have_a_condition_number_that_always_falls():
    runs = [toy(seed, np.linspace(0, 1, 51).tolist()) for seed in range(40)]
    kappas = [run[:, 0] / run[:, -1] for run in runs]
    assert sum(bool((k.diff() <= 0).all()) for k in kappas) <= 8
    assert sum(bool(k[-1] < k[0]) for k in kappas) >= 28

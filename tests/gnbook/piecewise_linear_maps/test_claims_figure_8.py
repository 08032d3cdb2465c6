"""Riedi 2022, figure 8: toys with a skip and without."""

import numpy as np
import pytest
import torch
from gnbook.piecewise_linear_maps.one_layer import layer_factors
from gnbook.shared.piecewise_linear import Layer

from tests.gnbook.piecewise_linear_maps.helpers import pseudo_condition, singular_values
from tests.strategies import exact, gaussian


def network(seed):
    """Weights, biases and input of Eq. 158."""
    draw = iter(range(1000 * seed, 1000 * seed + 1000))
    weights = [gaussian(next(draw), 6, d) for d in (2, 6, 6, 6)]
    return weights, [gaussian(next(draw), 6) for _ in weights], gaussian(next(draw), 1, 2)


def toy(seed, rhos):
    """Singular values of MD for each weight of the skip."""
    weights, biases, x = network(seed)
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
@pytest.mark.claim("Riedi Figure 8, condition number", verdict="fails")
def test_of_forty_toys_few_have_a_smallest_singular_value_or_a_condition_number_that_only_improves():
    toys = [toy(seed, np.linspace(0, 1, 21).tolist()) for seed in range(40)]
    for seen in (lambda run: run[:, -1], lambda run: run[:, -1] / run[:, 0]):
        runs = list(map(seen, toys))
        assert sum(bool((run.diff() >= 0).all()) for run in runs) <= 8
        assert sum(bool(run[-1] > run[0]) for run in runs) >= 28


@pytest.mark.claim("Riedi Figure 8, condition number", verdict="fails")
def test_two_units_where_the_skip_hurts():
    values = [pseudo_condition(exact([[1, 0], [0, -1]]) + rho * torch.eye(2).double()) for rho in (0.0, 0.5, 0.9)]
    assert values == pytest.approx([1, 3, 19])

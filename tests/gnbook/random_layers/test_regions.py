"""Regions of a residual layer with ReLUs."""

from itertools import product

import pytest
import torch
from gnbook.random_layers import matrices as rm
from gnbook.random_layers import regions


def test_a_region_deletes_rows_of_the_layer_and_columns_of_all():
    w = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    on, first = torch.tensor([True, True]), torch.tensor([True, False])
    assert regions.relu_condition(w, on, on) == pytest.approx(1)
    assert regions.relu_condition(w, first, on) == pytest.approx((5**0.5 + 1) / (5**0.5 - 1))
    assert regions.relu_condition(w, first, first) == pytest.approx(1)


def test_the_search_finds_the_worst_region_of_three_units_or_a_local_one():
    w = rm.draw(3, 1, generator=torch.Generator().manual_seed(0))[0] / 2
    every = [torch.tensor(active) for active in product([False, True], repeat=6) if any(active[3:])]
    values = [regions.relu_condition(w, active[:3], active[3:]) for active in every]
    found = max(regions.worst_region(w, active.clone()) for active in every)
    assert found == pytest.approx(max(values))

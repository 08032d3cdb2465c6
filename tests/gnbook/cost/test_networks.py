"""Networks of the sizes that are in use, what is foretold of their cost, and seconds that are taken."""

import pytest
import torch
from gnbook.cost import feasible
from gnbook.cost.networks import cnn, contracted
from torch import nn

import gnlib
from tests.oracles import normal


def test_the_direct_way_has_the_matrix_of_the_way_by_layers():
    torch.manual_seed(0)
    network, x = cnn().double(), torch.randn(3, 3, 16, 16, dtype=torch.float64)
    torch.testing.assert_close(contracted(network, x), gnlib.GaussNewton(network, x).gram())


@pytest.fixture
def steady(monkeypatch):
    """A machine whose speeds do not change."""
    monkeypatch.setattr(feasible, "seconds_per_flop", lambda: 1e-10)
    monkeypatch.setattr(feasible, "eigenvalue_seconds", lambda: 1e-10)


def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 5))


def test_products_and_eigenvalues_are_those_that_cost_counts(steady):
    found = feasible.foretold(small(), normal(4, 20, seed=1), [10, 40, 160])
    for size, seconds in found.items():
        counted = gnlib.GaussNewton(small(), normal(size, 20, seed=2)).cost()
        exact = 1e-10 * (counted.operations - counted.flops + (5 * size) ** 3)
        assert seconds > exact
        found[size] = (seconds - exact) / counted.backward
    assert found[10] == pytest.approx(found[160]) and found[10] == pytest.approx(found[40])  # a pass is a pass

"""What is foretold for many samples from a probe of few."""

import pytest
import torch
from gnbook.cost import feasible
from torch import nn

import gnlib
from tests.oracles import normal


@pytest.fixture
def steady(monkeypatch):
    """A machine whose speeds do not change."""
    monkeypatch.setattr(feasible, "seconds_per_flop", lambda: 1e-10)
    monkeypatch.setattr(feasible, "eigenvalue_seconds", lambda: 1e-10)


def perceptron():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 5))


def test_products_and_eigenvalues_are_those_that_cost_counts(steady):
    found = feasible.foretold(perceptron(), normal(4, 20, seed=1), [10, 40, 160])
    for size, seconds in found.items():
        counted = gnlib.GaussNewton(perceptron(), normal(size, 20, seed=2)).cost()
        exact = 1e-10 * (counted.operations - counted.flops + (5 * size) ** 3)
        assert seconds > exact
        found[size] = (seconds - exact) / counted.backward
    assert found[10] == pytest.approx(found[160]) and found[10] == pytest.approx(found[40])  # a pass is a pass


def test_it_ends_where_memory_does(steady):
    found = feasible.foretold(perceptron(), normal(4, 20, seed=1), [10, 100, 1000, 10_000], memory=0.3)
    assert [*found] == [10, 100, 1000]
    assert 8 * (5 * 1000) ** 2 < 0.3 * 2**30 < 8 * (5 * 10_000) ** 2

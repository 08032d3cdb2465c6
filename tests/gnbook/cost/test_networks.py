"""Networks of the sizes that are in use, what is foretold of their cost, and seconds that are taken."""

from time import sleep

import pytest
import torch
from gnbook.cost import feasible
from gnbook.cost.networks import ResNet, TextTransformer, cnn, contracted, count, patch_transformer, perceptron
from gnbook.cost.seconds import timed
from torch import nn

import gnlib
from tests.oracles import normal


def test_networks_have_the_shapes_that_they_say():
    for network in (perceptron(8), cnn(), patch_transformer(8)):
        assert network(torch.randn(2, 3, 16, 16)).shape == (2, 10)
    assert ResNet([1, 1, 1, 1]).eval()(torch.randn(2, 3, 40, 40)).shape == (2, 10)
    small = TextTransformer(words=50, width=64, layers=2, outputs=3)
    assert small(torch.randint(50, (2, 7))).shape == (2, 3)
    with torch.device("meta"):
        assert round(count(TextTransformer()) / 1e6) == 100


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


def test_it_ends_where_memory_does(steady):
    found = feasible.foretold(small(), normal(4, 20, seed=1), [10, 100, 1000, 10_000], memory=0.3)
    assert [*found] == [10, 100, 1000]
    assert 8 * (5 * 1000) ** 2 < 0.3 * 2**30 < 8 * (5 * 10_000) ** 2


def test_the_fastest_run_counts():
    waits = iter((0.05, 0.01, 0.05))
    seconds, _ = timed(lambda: sleep(next(waits)), torch.device("cpu"))
    assert 0.01 <= seconds < 0.05

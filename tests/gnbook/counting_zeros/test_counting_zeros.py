"""Rules for which eigenvalues are zero."""

import pytest
import torch
from gnbook.counting_zeros.rules import by_rules, free_directions, three_ways

import gnlib
from tests.oracles import normal


def test_the_three_ways_agree_on_what_is_not_zero_and_with_the_library():
    weights, x = [normal(5, 4, seed=0), normal(3, 5, seed=1)], normal(12, 4, seed=2)
    ways, rank = three_ways(weights, x), free_directions(weights, x)
    assert rank < 36 and {len(values) for values in ways.values()} == {36}
    for name, tolerance in (("float64", 1e-14), ("float32", 1e-6)):
        assert (ways[name] - ways["singular values"]).abs().max() < tolerance * ways["float64"][0]
    first, last = (torch.nn.Linear(*w.T.shape, bias=False).double() for w in weights)
    first.weight.data, last.weight.data = weights
    found = gnlib.condition_number(torch.nn.Sequential(first, torch.nn.ReLU(), last), x)
    assert found.rank == rank
    assert by_rules(ways, 12)[0]["kappa"] == pytest.approx(float(found), rel=1e-6)


def test_directions_are_counted_unit_by_unit():
    x, last = torch.eye(3, dtype=torch.float64), normal(4, 3, seed=0)
    hidden = torch.tensor([[1.0, -1, -1], [1, 1, -1], [-1, -1, -1]]).double()  # active on one sample, on two, on none
    assert free_directions([hidden, last], x) == (1 + 3) + (2 + 3)
    assert free_directions([hidden.abs(), last], x) == 12  # no more than there are eigenvalues


def test_each_rule_counts_what_is_above_its_threshold():
    double = torch.tensor([1.0, 1e-3, 1e-6, 1e-14, 1e-17]).double()
    single = torch.tensor([1.0, 1e-3, 1e-6, 2e-7, 1e-8]).double()
    ways = {"singular values": double, "float64": double, "float32": single}
    rows = {row["rule"]: row for row in by_rules(ways, 100, [1e-4, 1e-8, 1e-15])}
    assert [row["rank"] for row in rows.values()] == [5, 4, 3, 2, 2, 3, 3, 4, 4]
    assert rows["float32, relative"]["kappa"] == pytest.approx(1e6)
    assert rows["float32, relative"]["gap"] == pytest.approx(5)
    assert rows["singular values, relative"]["gap"] == float("inf")

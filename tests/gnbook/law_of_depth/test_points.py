"""Points of figures: means over networks, and the law for their sizes."""

import pytest
from gnbook.law_of_depth.points import COLUMNS, Point, kappa_point, largest_miss, runs

from gnlib.laws import deep_linear


def test_rows_of_one_network_size_are_its_runs_and_empty_cells_are_none():
    rows = [
        {"line": 800, "depth": 4, "kappa": 3.0, "lemma_2": 4.0},
        {"line": 400, "depth": 4, "kappa": 5.0, "lemma_2": None},
        {"line": 800, "depth": 4, "kappa": 3.5, "lemma_2": None},
    ]
    assert runs(rows, "line", "depth") == {(400, 4): (5.0,), (800, 4): (3.0, 3.5)}
    assert runs(rows, "line", "depth", value="lemma_2") == {(800, 4): (4.0,)}


def test_a_point_has_the_mean_the_spread_and_the_ratio():
    point = Point("2a", "name", 1.0, 4.0, (2.0, 4.0))
    assert point.row == ["name", 1.0, 4.0, 3.0, pytest.approx(2**0.5), 2, 0.75]
    assert len(point.row) == len(COLUMNS)
    assert Point("2a", "name", 1.0, 4.0, (2.0,)).spread is None


def test_the_law_of_a_point_is_the_one_for_its_sizes():
    point = kappa_point("20", "name", [7.0], 4, 3100, 1000, 3072, skip=1.0)
    keywords = dict(inputs=3072, skip=1.0)
    assert point.one == deep_linear(4, 3100, 1000, **keywords).kappa
    assert point.law == deep_linear(4, 3100, 1000, outputs=10, **keywords).kappa > point.one
    fewer = kappa_point("20", "name", [7.0], 4, 3100, 1000, 3072, skip=1.0, outputs=2)
    assert point.one < fewer.law < point.law


def test_misses_count_in_both_directions():
    assert largest_miss([Point("", "", 1, 2, (1.0,)), Point("", "", 1, 2, (3.0,))]) == pytest.approx(2)
    assert largest_miss([Point("", "", 1, 2, (2.2,)), Point("", "", 1, 2, (3.0,))]) == pytest.approx(1.5)

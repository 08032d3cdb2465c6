"""Figures and tables of the page on zeros."""

import matplotlib.pyplot as plt
import pytest
import torch
from gnbook.counting_zeros import drawing
from gnbook.counting_zeros.networks import rows_of, trained
from gnbook.counting_zeros.rules import three_ways

from tests.oracles import normal

IMAGES, LABELS = normal(12, 4, seed=2), torch.arange(12) % 10
WIDTHS = [
    {"width": m, "epoch": epoch, "loss": 0.5, "kappa_float64": 10.0 * m, "rank_float64": 100 + m}
    | {"kappa_float32": 7.0, "rank_float32": 50}
    for m in (10, 20)
    for epoch in (0, 5)
]


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def spectra():
    networks = {0: trained(5, IMAGES, LABELS, epochs=0)[0]}
    ways = {0: three_ways(networks[0].weights(), IMAGES)}
    return ways, *rows_of(networks, ways, IMAGES, (1e-4, 1e-8))


def test_what_is_above_the_threshold_counts():
    curve, kappa = drawing.counted(torch.tensor([4.0, 2.0, 1e-6]).double(), 1e-3)
    assert curve.x.tolist() == [1, 2] and curve.y.tolist() == [1, 0.5] and kappa == 2


def test_words_and_numbers():
    assert [drawing.when(epoch) for epoch in (0, 100)] == ["before training", "after 100 epochs"]
    assert [drawing.short(number) for number in (1.4e9, 3.21e10, 1.0)] == ["1.4e9", "3.2e10", "1.0e0"]


def test_a_star_for_each_way_at_the_last_that_counts(spectra):
    _, points, rules = spectra
    drawing.draw_spectra(points, rules)
    lines = plt.gcf().axes[0].lines
    stars = {(line.get_xdata()[0], line.get_ydata()[0]) for line in lines if line.get_markersize() == 14}
    assert stars == {(row["rank"], 1 / row["kappa"]) for row in rules if row["rule"].endswith("relative")}


def test_the_cliff_marks_the_right_rank(spectra):
    ways, _, rules = spectra
    _, axis = plt.subplots()
    drawing.draw_cliff(axis, ways[0], rules)
    (star,) = [line for line in axis.lines if line.get_marker() == "*"]
    assert star.get_xdata()[0] == rules[0]["rank"] and axis.get_yscale() == "log"
    assert any(text.get_text().endswith(", right") for text in axis.texts)


def test_hollow_marks_are_singular():
    _, axis = plt.subplots()
    drawing.draw_widths(axis, WIDTHS, 115)
    hollow = [line.get_xdata().tolist() for line in axis.lines if line.get_markerfacecolor() == "white"]
    assert hollow == [[10], [10], []]  # for each epoch, and for the legend


def test_there_is_no_gap_where_all_count(spectra):
    _, _, rules = spectra
    table = drawing.rule_table(rules, 120)
    assert len(table.rows) == 7 and "of the rank" in table.caption
    assert [row[3] == "-" for row in table.rows] == [row["rank"] == 120 for row in rules]
    regular = drawing.rule_table([row | {"rank": 120} for row in rules], 120)
    assert {row[3] for row in regular.rows} == {"-"}


def test_the_table_of_widths_says_where_the_cap_is():
    table = drawing.width_table(WIDTHS, 100)
    assert table.caption.startswith("100 eigenvalues; a threshold of 100 eps caps κ at 4.5e+13 (float64)")
    assert [row[0] for row in table.rows] == ["10", "20"] * 2 and table.rows[1][3:5] == ("2.0e+02", "120")

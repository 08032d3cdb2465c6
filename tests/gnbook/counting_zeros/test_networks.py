"""The networks of the page on zeros, and the rows and tables that are made of their spectra."""

import matplotlib.pyplot as plt
import pytest
import torch
from gnbook import figures
from gnbook.counting_zeros import drawing
from gnbook.counting_zeros.networks import by_precision, rows_of, trained
from gnbook.counting_zeros.rules import EPSILON, free_directions, three_ways

from tests.oracles import normal

IMAGES, LABELS = normal(12, 4, seed=2), torch.arange(12) % 10


def test_a_network_is_its_seed_and_training_makes_its_loss_smaller():
    start, rows = trained(5, IMAGES, LABELS, epochs=0, seed=3)
    assert rows == []
    again, rows = trained(5, IMAGES, LABELS, epochs=20, seed=3, every=10)
    assert [row["epoch"] for row in rows] == [0, 10, 20] and rows[0]["loss"] > rows[1]["loss"] > rows[2]["loss"]
    assert all(not torch.equal(a, b) for a, b in zip(start.weights(), again.weights(), strict=True))
    assert torch.equal(start.weights()[0], trained(5, IMAGES, LABELS, epochs=0, seed=3)[0].weights()[0])
    assert not torch.equal(start.weights()[0], trained(5, IMAGES, LABELS, epochs=0, seed=4)[0].weights()[0])


def test_single_precision_counts_no_more_than_double():
    net, _ = trained(5, IMAGES, LABELS, epochs=0)
    row = by_precision(net, IMAGES)
    assert row["rank_float32"] <= row["rank_float64"] == free_directions(net.weights(), IMAGES)
    assert row["kappa_float32"] <= row["kappa_float64"] < 1 / (120 * EPSILON["float64"])
    _, rows = trained(5, IMAGES, LABELS, epochs=2, measure=lambda net: by_precision(net, IMAGES))
    assert rows[0]["kappa_float64"] == pytest.approx(row["kappa_float64"])


def test_rows_hold_the_spectra_and_seven_rules():
    networks = {epoch: trained(5, IMAGES, LABELS, epochs=epoch)[0] for epoch in (0, 2)}
    ways = {epoch: three_ways(net.weights(), IMAGES) for epoch, net in networks.items()}
    points, answers = rows_of(networks, ways, IMAGES, (1e-4, 1e-8))
    assert [len([row for row in answers if row["epoch"] == epoch]) for epoch in (0, 2)] == [7, 7]
    free = free_directions(networks[2].weights(), IMAGES)
    assert {row["directions"] for row in points + answers if row["epoch"] == 2} == {free}
    later = {row["rank"]: row for row in points if row["epoch"] == 2}
    assert {1, free, free + 1, 120} <= {*later} and later[1]["float64"] == 1
    assert later[free]["float32"] == pytest.approx((ways[2]["float32"][free - 1] / ways[2]["float32"][0]).item())
    assert rows_of({}, {}, IMAGES, ()) == ([], [])


WIDTHS = [
    {"width": m, "epoch": epoch, "loss": 0.5, "kappa_float64": 10.0 * m, "rank_float64": 100 + m}
    | {"kappa_float32": 7.0, "rank_float32": 50}
    for m in (10, 20)
    for epoch in (0, 5)
]


def test_what_is_above_the_threshold_counts():
    curve, kappa = drawing.counted(torch.tensor([4.0, 2.0, 1e-6]).double(), 1e-3)
    assert curve.x.tolist() == [1, 2] and curve.y.tolist() == [1, 0.5] and kappa == 2


def test_the_table_of_widths_says_where_the_cap_is():
    table = drawing.width_table(WIDTHS, 100)
    assert table.caption.startswith("100 eigenvalues; a threshold of 100 eps caps κ at 4.5e+13 (float64)")
    assert [row[0] for row in table.rows] == ["10", "20"] * 2 and table.rows[1][3:5] == ("2.0e+02", "120")


NETWORKS = [
    row | {"seed": seed, "kappa_float64": row["kappa_float64"] * 10**seed} for seed in range(3) for row in WIDTHS
]


def test_the_spread_is_from_the_least_network_to_the_largest():
    alone = [WIDTHS[-1] | {"width": 30, "epoch": epoch, "seed": 0} for epoch in (0, 5)]
    table = drawing.spread_table([*NETWORKS, *alone])
    assert table.head == (
        "m",
        "networks",
        "loss, epoch 5",
        "κ, epoch 0",
        "rank, epoch 0",
        "κ, epoch 5",
        "rank, epoch 5",
    )
    assert table.rows[1] == ("20", "3", "0.5000", "2.0e+02 to 2.0e+04", "120", "2.0e+02 to 2.0e+04", "120")
    assert table.rows[2] == ("30", "1", "0.5000", "2.0e+02", "120", "2.0e+02", "120")


def test_a_line_goes_through_the_medians_and_each_network_has_a_mark_hollow_if_singular():
    _, (axis,) = figures.panels()
    drawing.draw_widths(axis, NETWORKS, 115)  # the rank is 110 at width 10, and 120 at width 20
    line, marks, hollow = axis.lines[:3]
    assert line.get_xydata().tolist() == [[10, 1000], [20, 2000]]
    of_each = [[m, 10.0 * m * 10**seed] for seed in range(3) for m in (10, 20)]
    assert marks.get_xydata().tolist() == of_each
    assert hollow.get_xydata().tolist() == of_each[::2] and hollow.get_markerfacecolor() == "white"
    plt.close(axis.figure)

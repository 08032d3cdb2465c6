"""The networks of the page on zeros, and the rows that are made of their spectra."""

import pytest
import torch
from gnbook.counting_zeros.networks import by_precision, rows_of, trained
from gnbook.counting_zeros.rules import EPSILON, free_directions, three_ways

from tests.oracles import normal

IMAGES, LABELS = normal(12, 4, seed=2), torch.arange(12) % 10


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

"""Numbers that the chapters on wide networks and on training quote."""

import re

import pytest

from gnlib.chapters import results
from tests.book.pages import prose, table, texts

LINEARITY, MOVING = "transition-to-linearity", "when-the-kernel-moves"


def numbers(lines):
    """The name that a row begins with, and its numbers, without those in the name."""
    rows = (re.split(r"\s{2,}", line.strip()) for line in lines)
    return {tuple(c for c in row if c[-1].isalpha()): [float(c) for c in row if not c[-1].isalpha()] for row in rows}


def test_the_kernel_moves_less_the_wider_the_network():
    rows = [re.split(r"\s{2,}", line) for line in table(LINEARITY, "relative change of the kernel, and the way")]
    found = {row[0]: [float(part) for part in (*row[1:3], *row[3].split(" ± "))] for row in rows}
    training, bad, way = (found[n] for n in ("after training", "moved by 3 in a bad direction", next(reversed(found))))
    assert f"by {100 * training[1]:.0f} % at width 512" in prose(f"notebooks/{LINEARITY}")
    assert training[2] + training[3] < -1 / 2 and bad[2] == pytest.approx(-1 / 2, abs=0.1)
    assert abs(way[2]) <= way[3]


def test_what_the_certificate_allows():
    page = prose(f"notebooks/{LINEARITY}")
    (caption,) = (re.match("the certificate is (.*) times", t) for t in texts(LINEARITY) if t.startswith("the certif"))
    assert "some twenty times what the search finds" in page and float(caption[1]) == pytest.approx(20, rel=0.2)
    width, _, allowed = table(LINEARITY, "allowed / found")[-1].split()
    assert "of width 256 nearly four hundred times" in page and width == "256" and 380 < float(allowed) < 400


def test_what_ranks_the_draws_of_a_network_whose_kernel_moves():
    ranks, chances = (numbers(table(MOVING, start)) for start in ("rank correlation of the two", "p: how often"))
    forecasts = [values for (_, name), values in ranks.items() if name == "forecast, frozen below"]
    assert len(forecasts) == 2 and min(values[-1] for values in forecasts) > 0.9
    assert "below 0.65 it may be chance, with ten runs" in prose(f"notebooks/{MOVING}")
    for pair, some in chances.items():
        assert all((p < 0.05) == (abs(rank) > 0.65) for p, rank in zip(some, ranks[pair], strict=True))
        if pair[1] in ("κ of the kernel of softmax", "κ of the kernel of swish"):
            assert min(some) > 0.05
        if pair[1] == "κ of the kernel below":
            assert min(some[:-1]) > 0.05 > some[-1]
    assert ranks["softmax: steps", "forecast, frozen below"][1] < 0.65  # no longer safe


def test_relu_networks_lose_directions():
    rows = {(row["width"], row["epoch"]): row for row in results.kept("counting-zeros") if row["figure"] == 18}
    before, after = rows[50, 0], rows[50, 100]
    assert "With 50 units a third of the eigenvalues become zero" in prose("notebooks/training")
    assert after["rank_float64"] == pytest.approx(2 / 3 * before["rank_float64"], rel=0.02)
    assert 1e5 < after["kappa_float64"] / before["kappa_float64"] < 1e6
    lost = [rows[m, 0]["rank_float64"] - rows[m, 100]["rank_float64"] for m in (15, 20, 30, 50, 100)]
    assert min(lost[:-1]) > 0 == lost[-1]

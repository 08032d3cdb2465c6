"""The findings of the laboratory's "When the kernel moves" and of its further experiments, by their tables."""

import numpy as np
import pytest
import scipy
from gnbook import results

from tests.pages.pages import named

FIRST, SECOND = "laboratory/when-the-kernel-moves", "laboratory/when-the-kernel-moves-further"


def test_what_ranks_the_draws_of_a_network_whose_kernel_moves():
    ranks, chances = (named(SECOND, start, 2) for start in ("rank correlation of the two", "p: how often"))
    forecasts = [values for (_, name), values in ranks.items() if name == "forecast, frozen below"]
    assert len(forecasts) == 2 and min(values[-1] for values in forecasts) > 0.9
    for pair, some in chances.items():
        assert all((p < 0.05) == (abs(rank) > 0.65) for p, rank in zip(some, ranks[pair], strict=True))
        if pair[1] in ("κ of the kernel of softmax", "κ of the kernel of swish"):
            assert min(some) > 0.05
        if pair[1] == "κ of the kernel below":
            assert min(some[:-1]) > 0.05 > some[-1]
        if pair[1] == "half the largest stable rate":  # where the rate is renewed
            assert min(some) > 0.5
    assert ranks["softmax: steps", "forecast, frozen below"][1] < 0.65  # no longer safe
    below, swish = (ranks["swish: error left", f"forecast, frozen {what}"] for what in ("below", "swish"))
    assert abs(below[0] - swish[0]) < 0.05 and all(a - b > 0.2 for a, b in zip(below[1:], swish[1:], strict=True))


def test_the_fall_with_a_relu_on_the_bottleneck_is_nearest_to_the_root():
    rows = [row for row in results.kept("when-the-kernel-moves-further") if row["figure"] == 2]

    def slope(reading, least, most=np.inf):
        some = [row for row in rows if row["reading"] == reading and least <= row["bottleneck"] <= most]
        fit = scipy.stats.linregress(*np.log([(row["bottleneck"], row["change"]) for row in some]).T)
        return fit.slope, scipy.stats.t.ppf(0.975, len(some) - 2) * fit.stderr

    whole, half = slope("and a ReLU", 10)
    assert (round(whole, 2), round(half, 2)) == (-0.60, 0.06)
    assert slope("and a ReLU", 10, 100)[0] == pytest.approx(-0.54, abs=0.005)
    others = ("as printed", "with biases", "and a factor")
    assert all(slope(reading, 10)[0] < whole - half for reading in others)
    assert [slope(reading, 50)[0] for reading in others] == pytest.approx([-0.71, -0.72, -0.74], abs=0.006)


def test_the_order_of_draws_at_one_rate():
    rows = named(SECOND, "one rate for all draws: rank correlation")
    small, *wider = rows["the forecast"]
    assert small < 0.65 < min(wider) and max(map(abs, rows["the rate that it might have had"])) < 0.65
    rows = named(FIRST, "rank correlation with the loss after 500 steps")
    assert scipy.stats.t.sf(0.65 * np.sqrt(8 / (1 - 0.65**2)), 8) * 2 == pytest.approx(0.05, abs=0.01)
    narrow, *wider = rows["forecast loss"]
    assert narrow < 0.65 < min(wider) and wider == sorted(wider) and wider[-1] > 0.985
    others = [abs(rank) for name in ("loss", "largest stable rate", "condition number κ") for rank in rows[name]]
    assert len(others) == 12 and max(others) < 0.65 and max(rows["largest true loss over smallest"]) < 1.2

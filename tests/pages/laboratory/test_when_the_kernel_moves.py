"""The findings of the laboratory's "When the kernel moves" and of its further experiments, by their tables."""

import numpy as np
import pytest
import scipy
import torch
from gnbook import results

import gnlib
from tests.pages.pages import named, texts

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


def test_the_kernel_of_a_linear_output_falls_more_slowly_where_networks_are_widest():
    rows = [
        row
        for row in results.kept("when-the-kernel-moves-further")
        if row["figure"] == 1 and row["network"] == "linear"
    ]
    medians = {m: np.median([row["change"] for row in rows if row["width"] == m]) for m in (1_000, 10_000, 1_000_000)}
    steps = (1_000, 10_000), (10_000, 1_000_000)
    early, late = (np.log(medians[m] / medians[n]) / np.log(m / n) for n, m in steps)
    assert -0.85 < early < -0.75 < late < -0.65


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


@pytest.mark.parametrize(
    ("width", "rate", "expected", "tolerance"),  # half of the smallest largest stable rate of ten draws
    [(64, 0.714, 5.0, 0.7), (1024, 0.0783, 4 / 3, 0.04), (4096, 0.0211, 1.04, 0.005)],
)
def test_the_forecast_on_images_is_right_in_the_limit_of_wide_networks(width, rate, expected, tolerance):
    images, labels = gnlib.load("mnist", 20, stride=4)
    torch.manual_seed(0)
    layers = torch.nn.Linear(49, width), torch.nn.ReLU(), torch.nn.Linear(width, 10)
    net = torch.nn.Sequential(*layers).double()
    for layer in net[::2]:
        torch.nn.init.kaiming_normal_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    ahead = gnlib.GaussNewton(net, images, labels, loss="cross_entropy").forecast(rate=rate, steps=500)
    descent = torch.optim.SGD(net.parameters(), lr=rate)
    for _ in range(500):
        descent.zero_grad()
        torch.nn.functional.cross_entropy(net(images), labels).backward()
        descent.step()
    over = (ahead.losses[-1] / torch.nn.functional.cross_entropy(net(images), labels)).item()
    assert over == pytest.approx(expected, abs=tolerance)
    if width == 1024:
        (printed,) = (text for text in texts(FIRST) if text.startswith(f"rate      {rate} of sgd"))
        assert f"trusted until step {ahead.trusted};" in printed
    dots = {64: (18, 22), 1024: (30, 45), 4096: (500, 500)}  # "about twenty", "about forty", "at the end"
    assert dots[width][0] <= ahead.trusted <= dots[width][1]


def test_draws_at_rates_of_their_own_are_ordered_by_their_forecasts():
    _, ahead, real = zip(*named(SECOND, "width 1,000, cross entropy after 500 steps").values(), strict=True)
    assert scipy.stats.spearmanr(ahead, real).statistic > 0.98


def test_a_linear_network_moves_less_the_wider_the_neighbours_of_its_bottleneck():
    *_, hundred, _, wide, _, _ = named(SECOND, "change of the kernel against the width")["linear"]
    assert hundred > 20 * wide

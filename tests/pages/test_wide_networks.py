"""Numbers that the chapters on wide networks and on training quote."""

import re

import numpy as np
import pytest
import scipy
import torch
from gnbook import results
from gnbook.functional_hessian.hessian import linear_hessian
from gnbook.transition_to_linearity.wide_network import WideNetwork, normal_weights

import gnlib
from gnlib import SecondMoment
from tests.pages.pages import prose, table, texts

LINEARITY, MOVING, FURTHER = "transition-to-linearity", "when-the-kernel-moves", "when-the-kernel-moves-further"


def numbers(lines):
    """The name that a row begins with, and its numbers, without those in the name."""
    rows = (re.split(r"\s{2,}", line.strip()) for line in lines)
    return {tuple(c for c in row if c[-1].isalpha()): [float(c) for c in row if not c[-1].isalpha()] for row in rows}


def test_the_kernel_moves_less_the_wider_the_network():
    page = prose(f"notebooks/{LINEARITY}")
    rows = [re.split(r"\s{2,}", line) for line in table(LINEARITY, "relative change of the kernel, the distance")]
    training, bad, way, before, after = ([float(c) for c in (*row[1:3], *row[3].split(" ± "))] for row in rows)
    assert f"by {100 * training[1]:.0f} % at width 512" in page and "about like $m^{-0.8}$" in page
    assert training[2] == pytest.approx(-0.8, abs=0.05)
    assert f"which is {100 / before[1]:.0f} % of" in page
    (*_, (_, change, moved, loss)) = (
        line.split() for line in table(LINEARITY, "100 steps, ten networks of each width")
    )
    assert f"At width 512 $\\kappa$ moves by {moved[:-1]} % at" in page
    assert f"$\\kappa$ by {moved[:-1]} % at" in page and change == f"{100 * training[1]:.0f}%"
    assert f"factor of {loss} there" in page
    assert 1 - after[1] / before[1] < float(moved[:-1]) / 100
    assert training[2] + training[3] < -1 / 2 and bad[2] == pytest.approx(-1 / 2, abs=0.1)
    assert abs(way[2]) <= way[3]
    assert f"of width 512 by {100 * training[1]:.0f} %" in page
    assert f"holds to {moved[:-1]} % at width 512" in page
    (norms,) = (text.splitlines()[1:] for text in texts(LINEARITY) if "layered bound / it" in text)
    (norm,) = (float(line.split()[1]) for line in norms if line.split()[0] == "512")
    assert f"$R = {way[1]}$ and norms of about {norm:.2f} and 0.88" in page
    assert (
        f"not the ${training[2]}$ of training" in page
        and "of about 150 %" in page
        and 2 * way[1] * norm / 0.88 == pytest.approx(1.5, abs=0.02)
    )
    assert f"training makes {100 * training[1]:.0f} %" in page
    (printed,) = (text for text in texts(LINEARITY) if text.startswith("width 256: the kernel changes by "))
    assert f"changes by {printed.strip()[:-1].split()[-1]} %." in page


def test_the_kernel_of_torchs_default_weights():
    page = prose(f"notebooks/{LINEARITY}")
    rows = [line.replace(",", "").split() for line in table(LINEARITY, "torch.nn, 100 steps; medians of three")]
    (narrow, middle, wide) = ((int(m), float(change[:-1]), float(way), float(last)) for m, change, _, way, last in rows)
    assert [narrow[0], middle[0], wide[0]] == [64, 256, 1024]
    assert "to width 256 the kernel moves by as much as it had. At width 1,024 it moves" in page
    assert "at width 256, and by a third at width 1,024" in page
    assert narrow[1] == pytest.approx(100, abs=10) and middle[1] == pytest.approx(100, abs=10)
    assert wide[1] == pytest.approx(33, abs=2)
    assert "of about 0.58 at any" in page
    assert all(row[3] == pytest.approx(0.58, abs=0.05) for row in (narrow, middle, wide))
    assert narrow[2] > narrow[3] and narrow[2] > middle[2] > wide[3] > wide[2]
    (*_, (width, change, *_)) = (line.split() for line in table(LINEARITY, "100 steps, ten networks of each width"))
    assert width == "512" and float(change[:-1]) < 10


def test_the_loss_at_width_256_is_off():
    images = gnlib.load("mnist", 10, stride=4)[0]
    images = images / images.norm(dim=1, keepdim=True) * images.shape[1] ** 0.5
    signs = torch.randn(10, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64).sign()
    start = normal_weights([images.shape[1], 256, 256, 1], generator=torch.Generator().manual_seed(0))
    net = WideNetwork(start)
    ahead = gnlib.GaussNewton(net, images, signs).forecast(steps=100)
    descent = torch.optim.SGD(net.parameters(), lr=ahead.rate)
    for _ in range(100):
        descent.zero_grad()
        ((net(images) - signs).square().sum() / 20).backward()
        descent.step()
    off = ahead.losses[-1] / ((net(images) - signs).square().sum() / 20)
    assert off.item() == pytest.approx(2.7, abs=0.05)
    assert prose(f"notebooks/{LINEARITY}").count("off by a factor of 2.7") == 1


def test_the_kernel_with_more_images():
    rows = [line.replace(",", "").split() for line in table(LINEARITY, "width 512, random labels, 100 steps")]
    _, changes, *_, before, after = zip(*([float(c) for c in row] for row in rows), strict=True)
    page = prose(f"notebooks/{LINEARITY}")
    assert "much for 50 images as" in page
    assert changes[1] / changes[0] == pytest.approx(2, abs=0.2)
    moves = [abs(b / a - 1) for a, b in zip(before, after, strict=True)]
    assert "moves by 6 % at" in page and max(moves) == pytest.approx(0.06, abs=0.005)


def test_the_slopes_of_the_hessian():
    slopes = [float(re.split(r"\s{2,}", line)[2].split()[0]) for line in table(LINEARITY, "exponent of the norm of")]
    assert f"slopes of {max(slopes):.2f} to {min(slopes):.2f}" in prose(f"notebooks/{LINEARITY}")


def test_what_the_certificate_allows():
    page = prose(f"notebooks/{LINEARITY}")
    (caption,) = (re.match("the certificate is (.*) times", t) for t in texts(LINEARITY) if t.startswith("the certif"))
    assert float(caption[1]) == pytest.approx(20, rel=0.2)
    width, _, allowed = table(LINEARITY, "allowed / found")[-1].split()
    assert "of width 256 nearly four" in page and width == "256" and 380 < float(allowed) < 400


def test_what_ranks_the_draws_of_a_network_whose_kernel_moves():
    ranks, chances = (numbers(table(FURTHER, start)) for start in ("rank correlation of the two", "p: how often"))
    forecasts = [values for (_, name), values in ranks.items() if name == "forecast, frozen below"]
    assert len(forecasts) == 2 and min(values[-1] for values in forecasts) > 0.9
    assert "below 0.65 it may" in prose(f"notebooks/{FURTHER}")
    for pair, some in chances.items():
        assert all((p < 0.05) == (abs(rank) > 0.65) for p, rank in zip(some, ranks[pair], strict=True))
        if pair[1] in ("κ of the kernel of softmax", "κ of the kernel of swish"):
            assert min(some) > 0.05
        if pair[1] == "κ of the kernel below":
            assert min(some[:-1]) > 0.05 > some[-1]
            assert "Its 0.67 at width 1,000 is just" in prose(f"notebooks/{FURTHER}")
            assert round(abs(ranks[pair][-1]), 2) == 0.67
        if pair[1] == "half the largest stable rate":  # where the rate is renewed
            assert min(some) > 0.5
    assert ranks["softmax: steps", "forecast, frozen below"][1] < 0.65  # no longer safe
    below, swish = (ranks["swish: error left", f"forecast, frozen {what}"] for what in ("below", "swish"))
    assert abs(below[0] - swish[0]) < 0.05 and all(a - b > 0.2 for a, b in zip(below[1:], swish[1:], strict=True))


def test_wider_neighbours_of_a_bottleneck():
    rows = numbers(table(FURTHER, "median change of the kernel, for wide layers of 100 and of 10,000"))
    for name, (three, three_wide, fifty, fifty_wide) in rows.items():
        if name != ("no biases",):
            assert 1.6 < three / three_wide < 2.5 and 1.6 < fifty / fifty_wide < 2.5
    linear = re.split(r"\s{2,}", table(FURTHER, "change of the kernel against the width")[0])
    assert f"change from {float(linear[4]):.2f} to {float(linear[6]):.2f}" in prose(f"notebooks/{FURTHER}")


def test_the_ends_of_the_spectrum_on_small_images():
    lines = table("training", "small images: extreme eigenvalues")
    ends = {int(epoch): (float(large), float(small)) for epoch, large, small, _ in map(str.split, lines)}
    page, (large, small) = prose("notebooks/training"), ends[2500]
    assert "By epoch 1,000 it has arrived. The smallest takes until epoch 2,000." in page
    assert ends[1000][0] > 0.99 * large and ends[1000][1] < 0.8 * small and ends[2000][1] > 0.98 * small


def test_small_images_are_unit_images_at_another_rate_and_start():
    (found,) = (text for text in texts("training") if "unit, both changed" in text)
    small, both, rate = ([float(c) for c in line.split()[-3:]] for line in found.splitlines()[1:])
    assert small == both and rate[0] > 10 * small[0] and rate[2] > 4 * small[2]


def test_which_eigenvalue_of_gauss_newton_sets_the_pace():
    lines = [line.split() for line in table("functional-hessian", "which eigenvalue is at work")]
    white, raw = ([line for line in lines if line[0] == kind] for kind in ("white", "as"))
    assert (len(white), len(raw)) == (2, 3)
    assert [float(line[4]) for line in white] == pytest.approx([float(line[5]) for line in white], rel=0.05)
    assert all(float(line[-2]) < 1e-8 for line in white)
    ratios = [int(line[-3].replace(",", "")) for line in raw]
    said = f"it is {ratios[0]:,} times the smallest of $G$ at first, and still {ratios[-1]} times at"
    assert said in prose("notebooks/functional-hessian") and ratios == sorted(ratios, reverse=True)
    assert all(float(line[-2]) < float(line[7]) for line in raw)
    along = {int(line[0]): line for line in (row.split() for row in table("functional-hessian", "images as they are"))}
    paces = [float(along[step][3]) / ratio for step, ratio in ((3000, ratios[0]), (30000, ratios[-1]))]
    heads = [float(along[step][4]) for step in (3000, 30000)]
    assert "about 900 at first and 17,000 at the" in prose("notebooks/functional-hessian")
    assert paces == pytest.approx([900, 17_000], rel=0.02)
    assert [float(line[-1].replace(",", "")) for line in (raw[0], raw[-1])] == pytest.approx(paces, rel=0.02)
    assert f"have {heads[0]:,.0f} and {heads[1]:,.0f}, which is" in prose("notebooks/functional-hessian")
    assert max(head / pace for head, pace in zip(heads, paces, strict=True)) < 5
    assert "factor of 56 or more," in prose("notebooks/functional-hessian")
    assert "large by 56 times and" in prose("notebooks/functional-hessian")
    assert min(ratios) == 56


def test_the_guarantee_by_width():
    (found,) = (text for text in texts("transition-to-linearity") if "norm at most" in text)
    norms = {line.split()[0]: float(line.split()[1]) for line in found.splitlines()[1:]}
    allowed = [norms[width] * (2 * 0.88 + norms[width]) / 0.88**2 for width in ("100,000", "10,000,000")]
    assert "about 55 % at width 100,000 and of about 5 % at" in prose("notebooks/transition-to-linearity")
    assert allowed == pytest.approx([0.55, 0.05], abs=0.005)


def test_the_order_of_draws_at_rates_of_their_own():
    lines = table(FURTHER, "width 1,000, cross entropy after 500 steps")
    _, rates, ahead, real = zip(*([float(c) for c in line.split()] for line in lines), strict=True)
    said = "correlation of 0.99."
    assert said in prose(f"notebooks/{FURTHER}")
    assert scipy.stats.spearmanr(ahead, real).statistic == pytest.approx(0.99, abs=0.005)
    assert scipy.stats.spearmanr(rates, real).statistic == pytest.approx(-0.99, abs=0.005)
    by_width = numbers(table(FURTHER, "rank correlation with the loss after 500 steps"))
    assert len(by_width["the rate",]) == 4 and max(by_width["the rate",]) < -0.9
    assert min(by_width["the forecast",]) > 0.9
    page, spread = prose(f"notebooks/{FURTHER}"), by_width["largest rate over smallest",]
    assert "that differ 385-fold" in page and spread[2] == pytest.approx(385, rel=0.01)
    assert "rates differ 385-fold" in prose(f"notebooks/{MOVING}")
    assert spread[3] == pytest.approx(4 / 3, abs=0.05)
    assert "At width 30 the networks" in page
    assert round(by_width["forecast over loss, median",][0]) == 2
    ratios = [a / r for a, r in zip(ahead, real, strict=True)]
    low, *close, high = sorted(ratios)
    assert all(abs(ratio - 1) < 0.1 for ratio in close) and 3.5 < 1 / low < 4 and round(high, 2) == 1.26


def test_the_order_of_draws_of_the_toy_at_one_rate():
    rows = numbers(table(FURTHER, "one rate for all draws: rank correlation"))
    assert "of width 100 or more." in prose(f"notebooks/{FURTHER}")
    small, *wider = rows["the forecast",]
    assert small < 0.65 < min(wider) and max(map(abs, rows["the rate that it might have had",])) < 0.65


def test_the_order_of_draws_on_images_at_one_rate():
    page, rows = prose(f"notebooks/{MOVING}"), numbers(table(MOVING, "rank correlation with the loss after 500 steps"))
    assert "lies between -0.65 and 0.65 may be" in page
    assert scipy.stats.t.sf(0.65 * np.sqrt(8 / (1 - 0.65**2)), 8) * 2 == pytest.approx(0.05, abs=0.01)
    narrow, *wider = rows["forecast loss",]
    assert "from width 256 on, and perfectly at 4,096." in page
    assert narrow < 0.65 < min(wider) and wider == sorted(wider) and wider[-1] > 0.985
    others = [abs(rank) for name in ("loss", "largest stable rate", "condition number κ") for rank in rows[name,]]
    assert len(others) == 12 and max(others) < 0.65
    assert max(rows["largest true loss over smallest",]) < 1.2


def test_the_forecast_on_images_is_right_in_the_limit_of_wide_networks():
    page = prose(f"notebooks/{MOVING}")
    assert "At width 64 it is some five times too large, at width 4,096 by 4 %." in page
    assert "at width 64, and by 4 % at width 4,096" in prose("notebooks/ten-minutes")
    (printed,) = (text for text in texts(MOVING) if text.startswith("rate      0.0783 of sgd"))
    assert "trusted until step 500" in printed
    images, labels = gnlib.load("mnist", 20, stride=4)
    for width, expected, tolerance in ((64, 5.0, 0.7), (1024, 4 / 3, 0.04), (4096, 1.04, 0.005)):
        torch.manual_seed(0)
        layers = torch.nn.Linear(49, width), torch.nn.ReLU(), torch.nn.Linear(width, 10)
        net = torch.nn.Sequential(*layers).double()
        for layer in net[::2]:
            torch.nn.init.kaiming_normal_(layer.weight)
            torch.nn.init.zeros_(layer.bias)
        rate = {64: 0.714, 1024: 0.0783, 4096: 0.0211}[width]  # half of the smallest largest stable one of ten draws
        ahead = gnlib.GaussNewton(net, images, labels, loss="cross_entropy").forecast(rate=rate, steps=500)
        descent = torch.optim.SGD(net.parameters(), lr=rate)
        for _ in range(500):
            descent.zero_grad()
            torch.nn.functional.cross_entropy(net(images), labels).backward()
            descent.step()
        real = torch.nn.functional.cross_entropy(net(images), labels)
        assert (ahead.losses[-1] / real).item() == pytest.approx(expected, abs=tolerance)


def test_how_far_the_kernel_of_softmax_moves():
    runs = [r for r in results.kept(FURTHER) if (r["figure"], r["network"]) == (1, "softmax")]
    changes, steps, widths = (np.array([r[what] for r in runs]) for what in ("change", "steps", "width"))
    assert len(runs) == 60
    assert {r["status"] for r in runs} == {"reached"}
    assert scipy.stats.spearmanr(changes, steps).pvalue > 0.3
    assert set(widths) == {30, 100, 1000, 10**4, 10**5, 10**6} and min(changes) > 0.99
    assert scipy.stats.linregress(np.log(widths), np.log(changes)).pvalue > 0.3  # no width prevents it


def test_the_share_levels_off_with_fewer_units_than_outputs():
    shares = [float(line.split()[1]) for line in table("functional-hessian", "white images, 8 hidden units")]
    assert shares[-2] == pytest.approx(shares[-1], rel=0.05) and shares[-1] > 0.01


def test_relu_networks_lose_directions():
    rows = {(row["width"], row["epoch"]): row for row in results.kept("counting-zeros") if row["figure"] == 18}
    before, after = rows[50, 0], rows[50, 100]
    assert "With 50 units a" in prose("notebooks/training")
    start, end = (line.split() for line in table("training", "50 units: mean over the images"))
    said = f"{float(start[1]):.0f} of the 50 are active on an image before, {float(end[1]):.0f} after"
    assert said in prose("notebooks/training") and int(end[2].replace(",", "")) == after["rank_float64"]
    assert after["rank_float64"] == pytest.approx(2 / 3 * before["rank_float64"], rel=0.02)
    assert 1e5 < after["kappa_float64"] / before["kappa_float64"] < 1e6
    assert "[the cap](#our-cap) $4.5 \\cdot 10^{11}$" in prose("notebooks/training")
    assert 0.75 < after["kappa_float64"] * 1e4 * 2**-52 < 1
    lost = [rows[m, 0]["rank_float64"] - rows[m, 100]["rank_float64"] for m in (15, 20, 30, 50, 100)]
    assert min(lost[:-1]) > 0 == lost[-1]
    assert rows[100, 100]["kappa_float64"] == pytest.approx(100 * rows[100, 0]["kappa_float64"], rel=0.15)
    for width in (15, 20):
        assert rows[width, 0]["rank_float64"] < 10_000
        assert rows[width, 100]["kappa_float64"] < rows[width, 0]["kappa_float64"]
    page, other = prose("notebooks/training"), prose("notebooks/counting-zeros")
    assert "of 50 and of 100 units *falls*" in page and "those of 50 and 100 by about" in other


def test_the_second_half_fades_with_an_activation_too():
    rows = [line.split()[1:] for line in table("functional-hessian", "200 white images")]
    for _, before, _, loss, after, top in [[float(c) for c in row] for row in rows]:
        assert before > 0.2 and after < before / 10 and loss > 0.05 and top == 1
    said, page = f"to {rows[0][4]} with tanh and to {rows[1][4]} with ReLUs", prose("notebooks/functional-hessian")
    tanh, relu = (round(100 * (float(row[2]) - 1)) for row in rows)
    assert said in page and f"it is {-tanh} % below with tanh and {relu} % above" in page
    _, top, least, *_ = next(row.split() for row in table("functional-hessian", "eigenvalues; 920") if row[:2] == "H ")
    assert 0.3 < -float(least) / float(top) < 1 / 3


def test_the_smallest_eigenvalue_of_the_hessian_is_that_of_one_direction_of_the_inputs():
    images, labels = gnlib.load("mnist", 1000, stride=4)
    x, y = images @ SecondMoment.from_data(images).basis, torch.nn.functional.one_hot(labels, 10).double()
    moment, cross = gnlib.second_moment(x), y.mT @ x / len(x)
    values, directions = torch.linalg.eigh(moment)
    v, w = gnlib.linear_weights([x.shape[1], 20, 10], generator=torch.Generator().manual_seed(0))
    for step in range(1001):
        omega = w @ v @ moment - cross
        if step in (0, 1000):
            eigenvalues, vectors = torch.linalg.eigh(linear_hessian([v, w], moment, omega))
            least = vectors[:, eigenvalues.abs().argsort(descending=True)[659]]  # of 660 that are not zero
            of_first = least[: v.numel()].view_as(v)  # as the first layer of a module is flattened
            assert (of_first @ directions[:, 0]).norm() ** 2 > 0.98
        v, w = v - 0.1 / values[-1] * w.mT @ omega, w - 0.1 / values[-1] * omega @ v.mT

"""What the text of "Convolutions" says of its tables is what they show."""

import re
from statistics import median

import pytest
import torch
from gnbook import results
from gnbook.convolution.gauss_newton import convolution_gauss_newton
from gnbook.convolution.measured import linear_condition
from gnbook.convolution.networks import convolution_weights

import gnlib
from tests.pages.kept import kappas
from tests.pages.pages import checked_lines, prose, table


@pytest.fixture(scope="module")
def text():
    return prose("notebooks/convolution")


@pytest.fixture(scope="module")
def further():
    return prose("notebooks/convolution-further")


@pytest.fixture(scope="module")
def choices():
    """From the change that a network makes to its limit, its condition number and the steps of training."""
    lines = [re.split(r"  +", line.strip()) for line in table("convolution", "gradient descent; medians")]
    return {name: tuple(map(float, cells)) for name, *cells in lines}


def test_what_each_choice_does(text, choices):
    plain, *others = choices.values()
    few, large, deep, apart = others
    assert [*choices] == ["kernel 3, 32 filters", "4 filters", "kernel 7", "three layers", "first stride 3"]
    assert "With 32 filters windows" in text
    for which in (1, 3):
        assert large[which] > plain[which] < deep[which] and apart[which] < plain[which] < few[which]
    assert large[0] > plain[0] < deep[0] and apart[0] < plain[0] == few[0]
    ordered = sorted(choices.values(), key=lambda found: found[1])
    assert ordered == sorted(choices.values(), key=lambda found: found[3])
    assert "one with 4, so in" in text and few[3] < 8 * plain[3]


def test_limits_on_raw_images(further):
    limits = {
        float(line.split()[-1]) for line in table("convolution-further", "two layers on squares, one") if "raw" in line
    }
    assert "limits are 895 and 29,400." in further and limits == {895, 29400}


def test_limits_of_the_first_figure(text, further, choices):
    rows = [line.split() for line in table("convolution-further", "condition number, median of 5")]
    limits = {row[1]: row[-1] for row in rows if row[0] == "squares"}
    eleven = next(row for row in results.kept("convolution-further") if (row["view"], row["kernel"]) == ("squares", 11))
    whole = [f"{float(end):.0f}" for end in (limits["3"], limits["7"], eleven["limit"])]
    assert "many filters: {}, {} and {} for kernels of 3, 7 and 11.".format(*whole) in text
    assert f"larger limits, {whole[0]} and {whole[1]}, and for kernels of 11 it is {whole[2]} where" in text
    assert [f"{choices[name][0]:.0f}" for name in ("kernel 3, 32 filters", "kernel 7")] == whole[:2]
    said = f"{limits['3']} for 9, {limits['7']} for 49, and {eleven['limit']:.0f} for the 121 of kernel 11."
    assert f"than for white data of full rank, the more so the larger the kernel: {said}" in further


def test_kappa_orders_networks_wrongly_at_first(text, choices):
    assert "a hundredth 4 filters are" in text
    by_kappa, by_steps = (sorted(choices, key=lambda name: choices[name][i]) for i in (1, 2))
    assert by_steps[-1] == by_kappa[2] == "4 filters" and len(choices) == 5


def test_ways_to_a_window(text):
    rows = [[float(cell) for cell in line.split()] for line in table("convolution", "whitened squares of MNIST; κ")]
    assert [row[0] for row in rows[:4]] == [1, 2, 3, 4] and {row[1] for row in rows[:4]} == {3}
    ends = [row[4] for row in rows[:4]]
    assert ends == sorted(ends)
    ways = {int(row[0]): row[3] for row in rows if row[2] == 7}
    said = f"it is {ways[3]:.0f} with three kernels of 3, and {ways[1]:.3g} with one of 7."
    assert said in text and ways[1] < ways[2] < ways[3] and len(ways) == 3


def test_windows_that_do_not_overlap(text):
    limits = [line.split()[-1] for line in checked_lines("convolution") if line.startswith("stride ")]
    assert limits == ["3.00", "1.00"]


def test_the_corners_of_a_window_see_unlit_pixels_most():
    """The diagonal of S, for kernels of 7: the smallest entry is that of a corner, and gives the limit nearly alone."""
    squares = gnlib.whiten(gnlib.load("mnist", 1000)[0]).reshape(1000, 28, 28)
    patches = squares.unfold(1, 13, 1).unfold(2, 13, 1)
    seen = patches.square().sum((0, 1, 2)) / 1000
    counts = torch.outer(*[torch.arange(1.0, 14).minimum(torch.arange(13.0, 0, -1))] * 2)
    assert seen.min() == seen[[0, 0, -1, -1], [0, -1, 0, -1]].min()
    assert (counts * seen).max() / (counts * seen).min() == pytest.approx(70, rel=0.03)


def test_the_peaks_of_the_figure(text):
    """Directions that m filters reach: the rank of G, and where the median is the largest."""
    squares = gnlib.whiten(gnlib.load("mnist", 1000)[0]).reshape(1000, 1, 28, 28)

    def found(filters, stride):
        draws = [
            convolution_weights([1, filters, 1], [(3, 3)] * 2, generator=torch.Generator().manual_seed(seed))
            for seed in range(10)
        ]
        return median(linear_condition(weights, squares, [stride, 1]) for weights in draws)

    def rank(filters, stride):
        weights = convolution_weights([1, filters, 1], [(3, 3)] * 2, generator=torch.Generator().manual_seed(0))
        return int(torch.linalg.matrix_rank(convolution_gauss_newton(weights, squares, [stride, 1]), hermitian=True))

    assert "stride of 3 the window has 81 places, and eight filters reach 80 of them" in text
    assert "filter reaches 17, eight filters 80 and nine all 81." in text
    assert [rank(filters, 3) for filters in (1, 8, 9)] == [17, 80, 81]
    assert [rank(filters, 1) for filters in (1, 2)] == [17, 25] and "have 18, for a window of 25 places." in text
    apart = {filters: found(filters, 3) for filters in (1, 2, 4, 6, 8, 9, 10, 12, 16, 32, 64)}
    assert max(apart, key=apart.get) == 8 and apart[9] > 0.7 * apart[8] and apart[9] > 5 * apart[10]
    said = "with 8 and with 16 the last figure has a larger $\\kappa$ for it than at stride 1."
    assert said in text and all(apart[filters] > found(filters, 1) for filters in (8, 16))
    assert apart[32] < found(32, 1) and apart[4] > found(4, 1) / 2


def test_with_a_relu_more_filters_raise_kappa_and_leave_the_loss(text):
    lines = table("convolution", "with a ReLU between the layers")
    rows = {}
    for line in lines:
        kernel, stride, filters, *found = (float(cell.replace(",", "")) for cell in line.split())
        rows.setdefault((kernel, stride), {})[filters] = found
    assert [*rows] == [(3, 1), (7, 1), (3, 3)] and all([*pair] == [4, 16] for pair in rows.values())
    assert "$\\kappa$ by 50 and more." in text
    assert "factor of 50 and more, and as much of the loss is left, within 0.03." in text
    ratios = []
    for (kernel, _), pair in rows.items():
        few, many = pair.values()
        assert many[0] / few[0] >= 50 and max(abs(a - b) for a, b in zip(few[3:], many[3:], strict=True)) <= 0.031
        assert [few[1], many[1]] == [m * (2 * kernel**2 - 1) for m in pair]
        ratios.append(many[2] / few[2])
    assert "factor of 1.6, or even" in text
    assert min(ratios) < 1 / 2 and all(1 / 1.6 < ratio < 1.6 for ratio in ratios[:2])
    small, large, apart = rows.values()
    for filters in (4, 16):
        assert small[filters][0] < large[filters][0]
        assert all(a < b for a, b in zip(small[filters][3:], large[filters][3:], strict=True))
        assert all(a < b for a, b in zip(small[filters][3:], apart[filters][3:], strict=True))
        assert 1 / 1.5 < apart[filters][0] / small[filters][0] < 1.5


def test_what_the_tasks_are(text):
    """One for each kernel and stride, without an activation and with a ReLU."""
    assert "always has 32 filters." in text and "many = 4, 32" in text
    drawn = "other = network([1, relu_filters[-1], 1], [(k, k)] * 2, seeds + seed)"
    assert text.count(drawn) == 1 and "relu_filters = 20, [4, 16]" in text
    assert "ones, of 16 filters with" in text


def test_medians_of_the_table_and_of_the_figure(further):
    """Five networks, and ten."""
    figure = {}
    for row in results.kept("convolution-further"):
        figure.setdefault((row["view"], row["kernel"], row["filters"]), []).append(row["kappa"])
    ratios = []
    for line in table("convolution-further", "condition number, median of 5"):
        view, kernel, *found = line.replace("pixels in a line", "pixels_in_a_line").split()
        for filters, value in zip((1, 2), map(float, found[:2]), strict=True):
            there = median(figure[view.replace("_", " "), int(kernel), filters])
            ratios.append(max(value / there, there / value))
    assert 2 < max(ratios) < 3.5


def test_width_without_sharing(further):
    assert "layer](one-hidden-layer.md) of 4,500 units still has 3.5." in further
    rows = [line.split() for line in table("one-hidden-layer", "whitened MNIST, means over")]
    (row,) = (row for row in rows if row[0].replace(",", "") == "4500")
    assert f"{float(row[1]):.1f}" == "3.5"


def test_medians_of_the_figure_and_the_limit(text, further):
    assert "At stride 1 (lines) each" in text
    ratios = {}
    for row in results.kept("convolution-further"):
        ratios.setdefault((row["view"], row["kernel"], row["filters"]), []).append(row["kappa"] / row["limit"])
    assert all(median(found) > 1 for (_, _, filters), found in ratios.items() if filters > 1)
    assert min(min(found) for (_, _, filters), found in ratios.items() if filters > 1) > 0.8
    assert "kernels of 11 on squares" in further and median(ratios["squares", 11, 1]) < 1


def test_trends_of_figure_8_as_coded(further):
    lines = table("convolution-further", "condition number, median of 10")
    printed = [[float(cell) for cell in line.split()[3:]] for line in lines if line.startswith("as coded")]
    where = {"images": "whitened", "formula": "as coded"}
    hundred = [
        [
            median(kappas("convolution-further-published", **where, kernel=kernel, filters=filters))
            for filters in (2, 3, 4, 5)
        ]
        for kernel in (7, 9, 11)
    ]
    assert all(list(column) == sorted(column, reverse=True) for column in list(zip(*printed, strict=True))[1:])
    assert "clear; kernel 11 levels off" in further
    assert all(list(column) == sorted(column, reverse=True) for column in zip(*hundred, strict=True))
    assert all(row[:3] == sorted(row[:3]) and row[3] > 0.9 * row[2] for row in hundred)


def test_the_proof_for_two_layers(further):
    """The display, against automatic differentiation of the effective kernel."""
    assert "\\sum_{t \\in K_1} w_f(j - t)\\, w_f(j' - t) + \\sum_{t \\in K_2} v_f(j -" in further
    draw = torch.Generator().manual_seed(0)
    v, w = (torch.randn(3, taps, generator=draw, dtype=torch.float64) for taps in (2, 4))  # three filters
    window = v.shape[1] + w.shape[1] - 1

    def effective(v, w):
        return sum(v[:, [t]] * torch.nn.functional.pad(w, (t, window - t - w.shape[1])) for t in range(2)).sum(0)

    jacobian = torch.cat([part.flatten(1) for part in torch.autograd.functional.jacobian(effective, (v, w))], 1)

    def tap(filters, place):
        inside = 0 <= place < filters.shape[1]
        return filters[:, place] if inside else torch.zeros_like(filters[:, 0])

    displayed = [
        [
            sum((tap(w, i - t) * tap(w, j - t)).sum() for t in range(2))
            + sum((tap(v, i - t) * tap(v, j - t)).sum() for t in range(4))
            for j in range(window)
        ]
        for i in range(window)
    ]
    assert torch.allclose(jacobian @ jacobian.mT, torch.tensor(displayed, dtype=torch.float64), atol=1e-12)

"""What the text of "Convolutions" says of its tables is what they show."""

from statistics import median

import pytest
import torch

from gnlib.chapters import results
from tests.book.kept import kappas
from tests.book.pages import prose, table


@pytest.fixture(scope="module")
def text():
    return prose("notebooks/convolution")


@pytest.fixture(scope="module")
def steps():
    """From kernel and filters to the condition number and the steps of training."""
    rows = [[float(cell) for cell in line.split()] for line in table("convolution", "gradient descent; medians")]
    return {(kernel, filters): found for kernel, filters, *found in rows}


def test_more_filters_take_fewer_steps_and_larger_kernels_more(text, steps):
    assert "With more filters it takes fewer steps, with the larger kernel more." in text
    assert "costs eight times one with 4, so in arithmetic the small network wins.)" in text
    assert all(0 < few / many < 8 for k in (3, 7) for few, many in zip(steps[k, 4][1:], steps[k, 32][1:], strict=True))
    for which in range(3):  # the condition number, and the steps to two shares of the loss
        few_small, many_small, few_large, many_large = (steps[point][which] for point in sorted(steps))
        assert many_small < few_small < few_large and many_small < many_large < few_large


def test_steps_differ_less_than_kappa_and_the_more_the_closer(text, steps):
    assert "At first the steps differ less than $\\kappa$" in text
    kappa, first, last = (steps[7, 4][which] / steps[3, 32][which] for which in range(3))
    assert first < last < kappa


def test_limits_on_raw_images(text):
    limits = {float(line.split()[-1]) for line in table("convolution", "two layers on squares, one") if "raw" in line}
    assert "there the limits are 895 and 29,400." in text and limits == {895, 29400}


def test_limits_of_the_first_figure(text):
    rows = [line.split() for line in table("convolution", "condition number, median of 5")]
    limits = {row[1]: row[-1] for row in rows if row[0] == "squares"}
    eleven = next(row for row in results.kept("convolution") if (row["view"], row["kernel"]) == ("squares", 11))
    eleven_too = (
        f"On squares the limits are {float(limits['3']):.0f}, {float(limits['7']):.0f} and {eleven['limit']:.0f}."
    )
    assert eleven_too in text and "(For data of full rank they are 9, 49 and 121; MNIST" in text
    said = f"{limits['3']} for 9, {limits['7']} for 49, and {eleven['limit']:.0f} for the 121 of kernel 11."
    assert f"on squares, the more so the larger the kernel: {said}" in text


def test_kappa_orders_the_networks_in_the_middle_wrongly_at_first(text, steps):
    assert (
        "in the first column of steps $\\kappa$ orders two networks wrongly: 64.3 takes 26 steps, 89.8 only 17." in text
    )
    assert (steps[3, 4][:2], steps[7, 32][:2]) == ([64.3, 26], [89.8, 17])


def test_ways_to_a_window(text):
    rows = [[float(cell) for cell in line.split()] for line in table("convolution", "three ways to a window of 7 x 7")]
    kappas = [row[2] for row in rows]
    assert f"it is {kappas[0]:.0f} with three kernels of 3, and {kappas[-1]:.3g} with one of 7." in text
    assert "The fewer layers, the smaller is $\\kappa$." in text and kappas == sorted(kappas, reverse=True)


def test_with_a_relu_more_filters_raise_kappa_and_leave_the_loss(text):
    assert "With a ReLU more filters raise κ" in text
    lines = table("convolution", "with a ReLU between the layers")
    rows = [[float(cell.replace(",", "")) for cell in line.split()] for line in lines]
    few_small, many_small, few_large, many_large = (kappa for _, _, kappa, *_ in rows)
    assert few_small < many_small < many_large and few_small < few_large < many_large
    assert "multiply $\\kappa$ by 50 and more" in text and min(many_small / few_small, many_large / few_large) >= 50
    assert "The largest of them, as many as before, keep their $\\kappa$ within a factor of 1.6." in text
    assert "it has the $\\kappa$ of the 68 largest, or of the 388 largest for kernels of 7" in text
    assert [rank for _, _, _, rank, *_ in rows] == [m * (2 * k * k - 1) for k, m, *_ in rows] == [68, 272, 388, 1552]
    few_small, many_small, few_large, many_large = (row[4] for row in rows)
    assert all(1 / 1.6 < a / b < 1.6 for a, b in ((few_small, many_small), (few_large, many_large)))
    assert "as much of the loss is left, within 0.03. (Two layers, 20 images, 300 steps" in text
    assert "**Larger kernels have the larger $\\kappa$ here too**, and more of the loss is left." in text
    for few_small, many_small, few_large, many_large in zip(*(row[5:] for row in rows), strict=True):
        assert abs(few_small - many_small) <= 0.031 and abs(few_large - many_large) <= 0.031
        assert max(few_small, many_small) < min(few_large, many_large)


def test_what_the_tasks_are(text):
    """One for each kernel, without an activation and with a ReLU."""
    one = "network([1, m, 1], [(k, k)] * 2, seed), network([1, many, 1], [(k, k)] * 2, seeds + seed)"
    assert one in text and "The other one has 32 filters of the same size." in text and "few, many = 4, 32" in text
    drawn = "other = network([1, relu_filters[-1], 1], [(k, k)] * 2, seeds + seed)"
    assert text.count(drawn) == 1 and "1 / values[0], relu_steps" in text and "relu_filters = 20, [4, 16]" in text
    assert "For each kernel all networks imitate the same ones, of 16 filters with ReLUs." in text


def test_medians_of_the_folded_table_and_of_the_figure(text):
    """Five networks, and ten."""
    assert "At one and two filters the two differ by up to a factor of three." in text
    figure = {}
    for row in results.kept("convolution"):
        figure.setdefault((row["view"], row["kernel"], row["filters"]), []).append(row["kappa"])
    ratios = []
    for line in table("convolution", "condition number, median of 5"):
        view, kernel, *found = line.replace("pixels in a line", "pixels_in_a_line").split()
        for filters, value in zip((1, 2), map(float, found[:2]), strict=True):
            there = median(figure[view.replace("_", " "), int(kernel), filters])
            ratios.append(max(value / there, there / value))
    assert 2 < max(ratios) < 3.5


def test_width_without_sharing(text):
    assert "[one hidden layer](one-hidden-layer.md) of 4,500 units still has 3.5." in text
    rows = [line.split() for line in table("one-hidden-layer", "whitened MNIST, means over")]
    (row,) = (row for row in rows if row[0].replace(",", "") == "4500")
    assert f"{float(row[1]):.1f}" == "3.5"


def test_medians_of_the_first_figure_and_the_limit(text):
    assert "From two filters on every median of the first figure lies above its limit" in text
    ratios = {}
    for row in results.kept("convolution"):
        ratios.setdefault((row["view"], row["kernel"], row["filters"]), []).append(row["kappa"] / row["limit"])
    assert all(median(found) > 1 for (_, _, filters), found in ratios.items() if filters > 1)
    assert "a single network at most a fifth below" in text
    assert min(min(found) for (_, _, filters), found in ratios.items() if filters > 1) > 0.8
    assert "the median may be lower, as for kernels of 11 on squares" in text and median(ratios["squares", 11, 1]) < 1


def test_trends_of_figure_8_as_coded(text):
    lines = table("convolution", "condition number, median of 10")
    printed = [[float(cell) for cell in line.split()[3:]] for line in lines if line.startswith("as coded")]
    where = {"images": "whitened", "formula": "as coded"}
    hundred = [
        [median(kappas("convolution-published", **where, kernel=kernel, filters=filters)) for filters in (2, 3, 4, 5)]
        for kernel in (7, 9, 11)
    ]
    assert "from three filters on larger kernels improve it" in text
    assert all(list(column) == sorted(column, reverse=True) for column in list(zip(*printed, strict=True))[1:])
    assert "There both trends are clear; kernel 11 levels off at four filters." in text
    assert all(list(column) == sorted(column, reverse=True) for column in zip(*hundred, strict=True))
    assert all(row[:3] == sorted(row[:3]) and row[3] > 0.9 * row[2] for row in hundred)


def test_the_proof_for_two_layers(text):
    """The display, against automatic differentiation of the effective kernel."""
    assert r"\sum_{t \in K_1} w_f(j - t)\, w_f(j' - t) + \sum_{t \in K_2} v_f(j - t)\, v_f(j' - t)" in text
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

"""The findings of pages of the laboratory that their tables and printed lines show."""

from itertools import combinations

import numpy as np
import pytest
import scipy
import torch

import gnlib
from tests.pages import pages
from tests.pages.pages import kappas, kept


def in_the_laboratory(function):
    """Return a function of a page's outputs for the name of a page of the laboratory."""
    return lambda page, *arguments: function(f"laboratory/{page}", *arguments)


cells, named, table, texts = map(in_the_laboratory, (pages.cells, pages.named, pages.table, pages.texts))


def choices():
    """From the change that a network makes to its limit, its condition number and the steps of training."""
    return named("convolution", "gradient descent; medians")


def test_what_each_choice_does():
    plain, few, *_ = choices().values()
    assert [*choices()] == ["kernel 3, 32 filters", "4 filters", "kernel 7", "three layers", "first stride 3"]
    by_kappa, by_steps, by_late = (sorted(choices(), key=lambda name: choices()[name][i]) for i in (1, 2, 3))
    assert by_kappa == by_late and few[3] < 8 * plain[3]
    assert by_steps[-1] == by_kappa[2] == "4 filters"


def test_which_eigenvalue_of_gauss_newton_sets_the_pace():
    rows = cells("functional-hessian", "which eigenvalue is at work")
    white, raw = ([row[1:] for row in rows if row[0] == kind] for kind in ("white", "as they are"))
    assert (len(white), len(raw)) == (2, 3) and white[0][0] == "300 to 1,000" and white[0][3] == 1
    assert all(pace == pytest.approx(smallest, rel=0.05) for _, pace, smallest, *_ in white)
    assert all(float(row[4].removeprefix("< ")) < 1e-8 for row in white) and all(row[4] < row[2] for row in raw)
    ratios = [row[3] for row in raw]
    assert (ratios[0], ratios[-1]) == pytest.approx((985, 48), rel=0.02) and ratios == sorted(ratios, reverse=True)
    along = {row[0]: row[3:5] for row in cells("functional-hessian", "images as they are")}
    (first, head), (last, late) = along[3000], along[30000]
    paces = first / ratios[0], last / ratios[-1]
    assert (round(paces[0], -2), round(paces[1], -3)) == (900, 20_000)
    assert [raw[0][-1], raw[-1][-1]] == pytest.approx(paces, rel=0.02)
    assert max(head / paces[0], late / paces[1]) < 5


def test_the_second_half_fades_with_an_activation_too():
    tanh, relu = named("functional-hessian", "200 white images").values()
    for _, before, _, loss, after, top in (tanh, relu):
        assert before > 0.2 and after < before / 10 and loss > 0.05 and top == 1
    assert (tanh[4], relu[4]) == pytest.approx((0.044, 0.016), rel=0.02)
    assert [row[2] - 1 for row in (tanh, relu)] == pytest.approx([0.01, 0.12], abs=0.006)


def test_descent_of_the_network_is_that_of_its_later_curvature():
    lines = map(str.split, table("gauss-newton", "share of the"))
    rows = {name: [float(cell) for cell in row] for name, *row in lines}
    _, predicted, later, _, network = rows["whitened"]
    assert predicted < network < later < network + 0.01
    assert all(row[3] < row[1] for row in rows.values())


def bottleneck(hidden):
    x = gnlib.load("mnist", 60, stride=7)[0]
    assert torch.linalg.matrix_rank(x) == 9
    weights = gnlib.linear_weights([16, hidden, 10], generator=torch.Generator().manual_seed(0))
    return gnlib.condition_number(gnlib.linear_gauss_newton(weights, gnlib.second_moment(x)))


@pytest.mark.parametrize(("hidden", "rank"), [(30, 90), (3, 48)])
def test_rank_behind_a_bottleneck(hidden, rank):
    assert bottleneck(hidden).rank == rank


def learned():
    return named("leaky-relu", "gradient descent, 100 images", 2)


def test_the_slopes_have_the_same_order_in_both_panels():
    pairs = []
    for kind in ("raw", "standardised", "centred", "white"):
        steps, forecasts = learned()[kind, "steps"], learned()[kind, "forecast"]
        pairs += [(a, b) for a, b in zip(steps, forecasts, strict=True) if a and a > 20]
        full = [a or b or float("inf") for a, b in zip(steps, forecasts, strict=True)]
        for (kappa, count), (other, more) in combinations(zip(learned()[kind, "κ"], full, strict=True), 2):
            assert (kappa - other) * (count - more) >= 0 and (count != more or (kind == "white" and count == 4))
    assert len(pairs) > 10 and all(abs(b / a - 1) < 0.05 for a, b in pairs)


def test_the_linear_model_lies_between_bounds_that_close():
    rows = cells("products", "bounds after 1,000 steps over the linear model")
    widths = [upper - lower for _, lower, upper, _ in rows]
    assert all(lower <= 1 <= upper for _, lower, upper, _ in rows)
    assert widths == sorted(widths, reverse=True) and rows[0][1] < 0.5 and widths[-2] < 1e-3


def test_a_product_costs_two_gradients_and_the_band_some_tens_of_products():
    rows = named("products", "100 images, single precision")
    assert len(rows) == 4
    for _, gradients, largest, band, _, error in rows.values():
        assert 1 < gradients < 5 and largest <= 25 and largest < band <= 60 and error < 1e-5


def test_times_sooner():
    """At the goals of the forecasts, and at 0.1."""
    here = [float(line.split()[-1]) for line in table("quick-start", "the factor that the linear model foretells")]
    there = [float(line.split()[-3]) for line in table("quick-start-further", "steps to a cross-entropy of")]
    for sooner in (here, there):
        assert len(sooner) == 3 and 2 < min(sooner) and 8.5 < max(sooner) < 10.5  # not the same on every machine
    assert all(1 / 1.5 < a / b < 1.5 for a, b in zip(here, there, strict=True))


def test_minibatches_shrink_both_extreme_eigenvalues_and_the_smallest_most_where_full_batches_rest():
    _, *columns = zip(*cells("training", "unit images, full batches and minibatches"), strict=True)
    for full, mini in zip(columns[::2], columns[1::2], strict=True):
        assert len({*full[1:]}) == 1 and list(mini) == sorted(mini, reverse=True) and mini[-1] < full[-1] < full[0]
    squares, large, small = columns[1::2]
    assert small[-1] / small[0] < 0.4 < 0.7 < large[-1] / large[0] < squares[-1] / squares[0]


def test_noise_and_not_the_rate_keeps_kappa_up():
    found = named("training", "one network, κ after 200 epochs", 2)
    _, start, *_ = found["small", 0.2]
    for rate, times in ((20, 2), (64, 10)):
        noisy, full = found["small", rate][2:]
        assert full == pytest.approx(start, rel=0.1) and noisy > times * start


def test_kappa_of_unit_images_grows_sevenfold_and_that_of_small_ones_doubles_and_comes_back():
    def ends(scale):
        last = max(row["epoch"] for row in kept("training") if row["scale"] == scale)
        return [np.mean(kappas("training", figure=10, scale=scale, epoch=epoch)) for epoch in (0, last)]

    small, unit = ends("small"), ends("unit")
    assert unit[1] == pytest.approx(7 * unit[0], rel=0.05) and small[1] == pytest.approx(small[0], rel=0.05)
    assert max(kappas("training", figure=10, scale="small")) == pytest.approx(2 * small[0], rel=0.1)


LAST = 0.88  # norm of the last weights, of any width


def test_the_kernel_moves_less_the_wider_the_network():
    rows = cells("transition-to-linearity", "relative change of the kernel, the distance")
    training, bad, way, before, after = ([*row[1:3], *map(float, row[3].split(" ± "))] for row in rows)
    _, change, moved, loss = cells("transition-to-linearity", "100 steps, ten networks of each width")[-1]
    assert change == round(100 * training[1]) == 7 and moved == 4 and loss == pytest.approx(1.7, abs=0.05)
    assert 1 - after[1] / before[1] < moved / 100 and 100 / before[1] == pytest.approx(3, abs=0.5)
    assert abs(way[2]) <= way[3]
    assert training[2] + training[3] < -1 / 2 and bad[2] == pytest.approx(-1 / 2, abs=0.1)
    (lines,) = (text.splitlines()[1:] for text in texts("transition-to-linearity") if "layered bound / it" in text)
    (norm,) = (float(line.split()[1]) for line in lines if line.split()[0] == "512")
    assert 2 * way[1] * norm / LAST == pytest.approx(1.5, abs=0.1)  # what the worst case allows


def test_the_order_of_draws_at_one_rate():
    rows = named("when-the-kernel-moves-further", "one rate for all draws: rank correlation")
    small, *wider = rows["the forecast"]
    assert small < 0.65 < min(wider) and max(map(abs, rows["the rate that it might have had"])) < 0.65
    rows = named("when-the-kernel-moves", "rank correlation with the loss after 500 steps")
    assert scipy.stats.t.sf(0.65 * np.sqrt(8 / (1 - 0.65**2)), 8) * 2 == pytest.approx(0.05, abs=0.01)
    narrow, *wider = rows["forecast loss"]
    assert narrow < 0.65 < min(wider) and wider == sorted(wider) and wider[-1] > 0.985
    others = [abs(rank) for name in ("loss", "largest stable rate", "condition number κ") for rank in rows[name]]
    assert len(others) == 12 and max(others) < 0.65 and max(rows["largest true loss over smallest"]) < 1.2

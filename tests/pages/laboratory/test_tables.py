"""The findings of pages of the laboratory that their tables and printed lines show."""

from itertools import combinations

import numpy as np
import pytest
import scipy
import torch
from gnbook.deep_nonlinear.networks import ACTIVATIONS  # noqa: F401 (the page has the gain)
from gnbook.deep_nonlinear.wide_limit import deep_relu_condition  # noqa: F401 (the page has it)
from gnbook.random_layers import bounds
from gnbook.random_layers.blocks import KINDS
from gnbook.random_layers.bounds import norm_of  # noqa: F401 (the page has it)

import gnlib
from tests.oracles import normal
from tests.pages import pages
from tests.pages.pages import kappas, kept


def in_the_laboratory(function):
    """Return a function of a page's outputs for the name of a page of the laboratory."""
    return lambda page, *arguments: function(f"laboratory/{page.removeprefix('laboratory/')}", *arguments)


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
    assert all(pace == pytest.approx(smallest, rel=0.05) for _, pace, smallest, *_ in white)
    ratios = [row[3] for row in raw]
    assert (ratios[0], ratios[-1]) == pytest.approx((985, 48), rel=0.02) and ratios == sorted(ratios, reverse=True)


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


def test_times_sooner():
    sooner = [float(line.split()[-5]) for line in table("quick-start", "steps to a cross-entropy of")]
    assert len(sooner) == 3 and 2 < min(sooner) and 8.5 < max(sooner) < 10.5  # not the same on every machine


def test_noise_and_not_the_rate_keeps_kappa_up():
    found = named("training", "one network, κ after 200 epochs", 2)
    _, start, *_ = found["small", 0.2]
    for rate, times in ((20, 2), (64, 10)):
        noisy, full = found["small", rate][2:]
        assert full == pytest.approx(start, rel=0.1) and noisy > times * start


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
    assert 2 * way[1] * norm / 0.88 == pytest.approx(1.5, abs=0.1)  # by the norm of the last weights: the worst case


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


LARGE = 0.3 * normal(15, 15, seed=0)  # the matrices of the first figure


def large(weight):
    """Singular values of the large layer and its skip."""
    return torch.linalg.svdvals(LARGE + weight * torch.eye(15, dtype=torch.float64))


def least_gap():
    """How near the smallest two singular values of the large layer come, and at which weight of the skip."""
    return min(((large(weight)[-2] - large(weight)[-1]).item(), weight) for weight in np.linspace(0, 1, 201))


def test_when_all_singular_values_are_larger():
    larger = {
        rho: found[2] for rho, found in named("adding-the-identity", "singular values of the layer of 15 units").items()
    }
    enough = -torch.linalg.eigvalsh(LARGE + LARGE.mT)[0].item()
    assert all(count == 15 for rho, count in larger.items() if rho > enough)


def test_branches_that_start_at_zero():
    found = named("adding-the-identity-further", "four blocks that start at zero", 2)
    assert found["Adam", 100][2] < 1 < found["Adam", 300][1]
    ends = [found[way, 1000][at] for way in ("SGD", "Adam") for at in (0, 4)]
    assert 0.4 < ends[1] / ends[0] < 0.65 and 0.9 < ends[3] / ends[2] < 1


def of_normalised(end):
    return np.median(kappas("adding-the-identity-further", end, network="one, normalised"))


def lines_of(caption, page="random-layers-further"):
    """Return the numbers of the lines under the head of the table with this caption, by their first column."""
    lines = [line.replace(",", "").replace("inf", "Infinity").split() for line in table(page, caption)]
    return {line[0]: [float(word.rstrip("%")) for word in line[1:] if word != "-"] for line in lines}


def over_the_limit(r):
    """By how many per cent the symmetric bound is too large in the limit."""
    return 100 * (bounds.riedi_theorem_38(r).symmetric / bounds.skip_condition_limit(r) - 1)


def test_with_three_seeds_skips_end_lower_and_branches_that_start_at_zero_lowest():
    lines = [line.split("  ") for line in table("random-layers", "loss before and after 30 epochs")]
    found = {words[0]: [float(word) for word in " ".join(words[1:]).split()[:4]] for words in lines}
    without, usual, zero = (found[kind] for kind in KINDS)
    assert all(a > b > c for a, b, c in zip(without[1:], usual[1:], zero[1:], strict=True))


def images():
    return gnlib.load("mnist", 60, stride=2)


def of_many(column="kappa"):
    """By images, activation and depth, of 500 images."""
    rows = [row for row in kept("deep-nonlinear") if row["shape"] == "chain"]
    return {(row["data"], row["activation"], row["depth"]): row[column] for row in rows}


def of_sharper():
    """The sharper bound over the condition number, of raw images."""
    kappas, sharper = of_many(), of_many("sharper")
    return [sharper[key] / kappas[key] for key in kappas if key[0] == "raw" and key[1] != "linear"]


def of_three_seeds(start):
    """By kind of images, from each network to what it has with each seed."""
    found = named("deep-nonlinear-further", start, 2)
    shapes = [name for name, kind in found if kind == "raw"]
    assert len(shapes) == 5 and [shapes[0], *shapes[3:]] == ["2 layers", "8, branches / L", "8, LayerNorm"]
    return ([found[name, kind] for name in shapes] for kind in ("raw", "less"))


def test_steps_do_not_follow_kappa():
    """By the tables of three seeds, whose first column is what the figure shows."""
    (kappa_raw, kappa_less), (raw, less) = (
        [[runs[0] for runs in kind] for kind in of_three_seeds(start)]
        for start in ("κ at the start, three", "steps down to a loss")
    )
    assert kappa_raw[4] < kappa_raw[1] < min(kappa_raw[2:4])
    assert max(before / after for before, after in zip(raw, less, strict=True)) == raw[0] / less[0]
    assert kappa_less[3] == max(kappa_less)
    assert less[3] == min(less[1:]) and less[0] == min(raw + less)


SIZES = sorted({(row["images"], row["width"], row["depth"]) for row in kept("residual")})


def pairs(skip, *size):
    """Condition numbers without a skip and with it, of networks of a size."""
    images, width, depth = size
    return [np.array(kappas("residual", images=images, width=width, depth=depth, skip=s)) for s in ("no skip", skip)]


def gains(skip, sizes=SIZES):
    """By how much the mean condition number of a size is larger without the skip."""
    return [without.mean() / found.mean() for without, found in (pairs(skip, *size) for size in sizes)]


def off_the_mean():
    """Per cent that skips of full strength take off the mean of a width and depth."""
    return [100 * (1 - 1 / gain) for gain in gains(1)]


def off_each():
    """Per cent that they take off each network."""
    both = (pairs(1, *size) for size in SIZES)
    return np.concatenate([100 * (1 - found / without) for without, found in both])


def test_full_strength_helps_every_network_and_the_gain_stops_growing():
    assert min(off_each()) > 0
    assert all(1.35 < gain < 1.65 for gain in gains(1, [size for size in SIZES if size[1] != 1600 and size[2] >= 6]))


def trained(kind):
    """Of colour images: κ and the steps to a tenth and to a hundredth, each from no skip to the strongest."""
    rows = [
        row[-3:] for row in cells("residual", "60 images, rate one over the largest") if row[:2] == ["CIFAR-10", kind]
    ]
    assert len(rows) == 4
    return zip(*rows, strict=True)


def test_on_standardised_images_skips_save_steps_and_on_raw_images_they_save_none():
    kappa, *both = trained("standardised")
    assert [*kappa] == sorted(kappa, reverse=True) and all(max(steps[1:]) < steps[0] for steps in both)
    _, tenth, hundredth = trained("raw")
    assert all([*steps] == sorted(steps) for steps in (tenth, hundredth)) and 1.9 < tenth[3] / tenth[0] < 2.1


def test_what_counts_is_whether_the_mean_image_is_gone():
    found = named("residual", "κ, geometric mean of 3 networks, L = 8", 2)
    assert len(found) == 9
    for (_, kind), (left, plain, *skips) in found.items():
        if kind != "raw, no ReLUs":
            assert max(skips) < plain if left <= 5 else left >= 32 and min(skips) > plain
        else:
            assert max(skips) < plain

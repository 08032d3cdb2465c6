"""The numbers in the text of "Deep linear networks" are those of its tables."""

import itertools

import numpy as np
import pytest
import torch
from gnbook import results
from gnbook.deep_linear.orthogonal import trainings

import gnlib
from tests.pages.pages import prose, table


@pytest.fixture(scope="module")
def page():
    return prose("notebooks/deep-linear")


def level(factor, depths):
    rows = [row for row in results.kept("deep-linear") if (row["figure"], row["line"]) == ("2b", factor)]
    return [np.mean([row["kappa"] for row in rows if row["depth"] == depth]) for depth in depths]


def test_width_in_proportion_sets_the_level(page):
    assert [round(587 / factor, 1) for factor in (600, 150, 75)] == [1.0, 3.9, 7.8]
    assert level(600, range(5, 11)) == pytest.approx([12.3] * 6, rel=0.04)
    assert level(150, (12, 14, 16)) == pytest.approx([110] * 3, rel=0.02)
    earlier, before, last = level(75, (12, 14, 16))
    assert f"{last:.0f}" == "370" and before > 1.15 * earlier
    assert (
        f"up to 14 layers at least: from {before:.0f} there to {last:.0f} at 16 is less than the networks differ"
        in page
    )
    differ = [row["kappa"] for row in results.kept("deep-linear") if (row["line"], row["depth"]) == (75, 16)]
    assert np.std(differ, ddof=1) > last - before
    assert "at $c = 600$ from five layers on, at $c = 150$ from twelve on" in page
    assert {round(kappa) for kappa in level(600, range(5, 11))} == {12, 13}


def test_four_layers_at_larger_ratios(page):
    rows = [row for row in results.kept("deep-linear") if row["depth"] == 4]
    widths = {("2a", 800): 800, ("2b", 150): 600, ("2a", 400): 400, ("2b", 75): 300}
    assert sorted(round(4 * 587 / width, 1) for width in widths.values()) == [2.9, 3.9, 5.9, 7.8]
    kappas = [np.mean([row["kappa"] for row in rows if (row["figure"], row["line"]) == which]) for which in widths]
    assert f"from 2.9 to 7.8 their condition number is {min(kappas):.0f} to {max(kappas):.0f}" in page
    assert "At two layers the ratio does not matter, and at four layers it says little above 3" in page
    assert {round(level(factor, [2])[0]) for factor in (600, 150, 75)} == {5} and max(kappas) < 1.25 * min(kappas)


def test_what_depth_does_with_activations_is_their_chapters_word(page):
    said = "own to a thousandth of the loss eight layers of ReLUs are no faster than two"
    assert said in page and said in prose("notebooks/deep-nonlinear")


def test_what_depth_costs_on_raw_images(page):
    means = {}
    for row in results.kept("one-hidden-layer"):
        if row["figure"] == 19 and row["width"] == 3100:
            means.setdefault((row["images"], row["depth"]), []).append(row["kappa"])
    raw, white = (np.mean(means[name, 10]) / np.mean(means[name, 2]) for name in ("raw", "whitened"))
    assert f"make $\\kappa$ {raw:.1f} times as large, on whitened ones {white:.0f} times" in page


def test_where_depth_counts_hidden_layers(page):
    few, many = (
        [float(kappa) for kappa in line.split()[1:]] for line in table("deep-linear", "white data of 49 inputs, width")
    )
    assert many == sorted(many, reverse=True) and few[0] < few[1] and few[1:] == sorted(few[1:], reverse=True)
    assert "it does at $c = 600$, and at $c = 200$ from two hidden layers on" in page


def test_perturbation_theory_is_about_larger_factors(page):
    c, r, k, depth = 600, 587, 10, 10
    below = r * (2 * depth - 1) / (6 * (depth - 1))
    above = k * (depth - 2) * (2 * depth - 3) / (6 * depth * (depth - 1))
    kappa = 1 + 4 / c**0.5 * (below**0.5 + above**0.5)
    said = "for $c = 600$, hardly above $r$, and ten layers it gives {:.1f}, and the figure has {:.0f}"
    assert said.format(kappa, *level(c, [depth])) in page


def test_the_sharper_bound_on_raw_images(page):
    lines = [line.split() for line in table("deep-linear", "bounds over the condition number")]
    lemma = [float(line[4]) for line in lines if line[0] == "raw"]
    assert f"On raw images Lemma 2 is {min(lemma):.0f} to {max(lemma):.0f} times too large" in page
    assert "within 6 per cent everywhere" in page and max(float(line[6]) for line in lines) < 1.06


def test_what_depth_costs_at_two_widths(page):
    means = {}
    for row in results.kept("deep-linear"):
        if row["figure"] == "2a":
            means.setdefault((row["line"], row["depth"]), []).append(row["kappa"])
    narrow, wide = (np.mean(means[width, 20]) / np.mean(means[width, 2]) for width in (400, 3200))
    said = "From two layers to twenty the narrowest gets {:.0f} times as large, the widest {:.0f} times"
    assert said.format(round(narrow, -1), wide) in page
    assert np.mean(means[400, 14]) == pytest.approx(np.mean(means[800, 14]), rel=0.05)
    assert "at 14 layers the means of the two narrowest sizes meet" in page


def test_the_bound_at_twenty_layers(page):
    rows = [row for row in results.kept("deep-linear") if (row["figure"], row["depth"]) == ("2a", 20)]
    ratios = [row["lemma_2"] / row["kappa"] for row in rows if row["lemma_2"] is not None]
    assert len(ratios) == 4
    assert f"at twenty layers it is {min(ratios):.1f} to {max(ratios):.1f} times as large" in page
    narrow, wide = (row["lemma_2"] / row["kappa"] for row in rows if row["seed"] == 0 and row["line"] in (800, 3200))
    assert f"{narrow:.1f} times as large as the condition number for 800 units, {wide:.1f} times for 3,200" in page


def test_the_level_by_the_ratio(page):
    """The table of levels, and that it may be read along its rows."""
    depths = (2, 4, 6, 10, 16)
    lines = [line.split() for line in table("deep-linear", "κ where the width is c times the depth")]
    for line, factor in zip(lines, (600, 150, 75), strict=True):
        levels = level(factor, depths if factor < 600 else depths[:-1])
        assert levels == sorted(levels)
        cells = [f"{kappa:.0f}" for kappa in levels] + ["-"] * (len(depths) - len(levels))
        assert line == [str(factor), f"{587 / factor:.1f}", *cells]
    assert not any(row["line"] == 600 and row["depth"] > 10 for row in results.kept("deep-linear"))
    assert "at 12 to 13 with 600 units for each layer of depth, near 110 with 150 (from twelve layers on)" in page


def test_the_ratio_is_a_guide_from_ten_layers_on_up_to_four(page):
    points = {}
    for row in results.kept("deep-linear"):
        if row["figure"] in ("2a", "2b"):
            width = row["line"] * (row["depth"] if row["figure"] == "2b" else 1)
            points.setdefault((row["depth"], round(row["depth"] * 587 / width, 1)), []).append(row["kappa"])
    points = {point: np.mean(found) for point, found in points.items()}
    at_one = [kappa for (depth, ratio), kappa in points.items() if depth >= 5 and ratio == 1]
    assert "At a ratio of one $\\kappa$ is near 12, at four near 100." in page
    assert at_one == pytest.approx([12.3] * 6, rel=0.04)
    assert max(depth for depth, ratio in points if ratio == 1) == 10
    near = [kappa for (depth, ratio), kappa in points.items() if depth >= 10 and 3.6 < ratio < 4]
    assert f"At 3.7 and 3.9 ten to twenty layers have {min(near):.0f} to {max(near):.0f}." in page
    assert "At smaller ratios there is one depth for each, ten layers at a ratio of one." in page
    smaller = [ratio for depth, ratio in points if depth >= 10 and ratio < 3.6]
    assert len(smaller) == len(set(smaller))
    deep = [kappa for (depth, ratio), kappa in points.items() if depth >= 10 and 3.6 < ratio < 4]
    assert deep == pytest.approx([100] * 6, rel=0.1)
    below = sorted((ratio, kappa) for (depth, ratio), kappa in points.items() if depth >= 10 and ratio < 3.6)
    assert [kappa for _, kappa in below] == sorted(kappa for _, kappa in below)
    assert max(kappa for (depth, _), kappa in points.items() if depth <= 6) < 70
    assert "Networks of six layers or fewer stay below 70 at the ratios computed." in page
    for depth in (2, 4, 6):
        high = [kappa for (of, ratio), kappa in points.items() if of == depth and ratio > 3.5]
        assert max(high) < 1.25 * min(high)
    said = "At a ratio of 14.7 ten layers have {:.0f}, twenty have {:,.0f}. At 7.3 they have {:.0f} and {:.0f}."
    found = [float(f"{points[point]:.2g}") for point in ((10, 14.7), (20, 14.7), (10, 7.3), (20, 7.3))]
    assert said.format(*found) in page


def test_the_price_of_width(page):
    sizes = [784, *[6000] * 9, 10]
    weights = sum(a * b for a, b in itertools.pairwise(sizes))
    assert "nine hidden layers of 6,000 units, and 293 million weights" in page and round(weights / 1e6) == 293


def test_the_terms_find_a_small_layer_and_no_uneven_one(page):
    plain, uneven, small = (
        line.rsplit(maxsplit=4)[1:] for line in table("deep-linear", "white data of 49 inputs, ten")
    )
    assert float(uneven[0]) > 2 * float(plain[0]) and uneven[3] != "5"
    assert small[1] == small[2] and small[3] == "5"
    assert "The terms find the layer of too small a scale" in page


def test_the_formula_of_the_third_exercise(page):
    c, r, k = 2000, 587, 10
    below = {depth: r * (2 * depth - 1) / (6 * (depth - 1)) for depth in (2, 3)}
    above = {depth: k * (depth - 2) * (2 * depth - 3) / (6 * depth * (depth - 1)) for depth in (2, 3)}
    kappas = [1 + 4 / c**0.5 * (below[depth] ** 0.5 + above[depth] ** 0.5) for depth in (2, 3)]
    assert "The formula gives {:.2f} at $L = 2$ and {:.2f} at $L = 3$".format(*kappas) in page


@pytest.mark.slow
def test_what_the_third_exercise_measures(page):
    white = gnlib.SecondMoment.from_data(gnlib.whiten(gnlib.load("mnist", 1000)[0]))

    def kappa(depth, seed):
        weights = gnlib.linear_weights(
            [784, *[2000 * depth] * (depth - 1), 10], generator=torch.Generator().manual_seed(seed)
        )
        return float(gnlib.condition_number(gnlib.linear_gauss_newton(weights, white)))

    means = [np.mean([kappa(depth, seed) for seed in range(3)]) for depth in (2, 3)]
    assert "Measured, means of three networks: {:.2f} and {:.2f}.".format(*means) in page


@pytest.mark.parametrize("width", [20, 40, 60])
@pytest.mark.parametrize("depth", [2, 5, 20])
def test_orthogonal_layers_leave_the_condition_number_of_the_data(depth, width):
    assert "$\\kappa$ is that of the data, at any depth: one for whitened images" in prose("notebooks/deep-linear")
    generator = torch.Generator().manual_seed(0)
    shapes = [(width, 49), *[(width, width)] * (depth - 2), (10, width)]
    weights = [torch.empty(shape, dtype=torch.float64) for shape in shapes]
    for weight in weights:
        torch.nn.init.orthogonal_(weight, generator=generator)
    data = torch.randn(200, 49, generator=generator, dtype=torch.float64)
    if width < 49:
        assert "With fewer units than inputs $\\kappa$ is $L$ for white data" in prose("notebooks/deep-linear")
        moment, expected = gnlib.SecondMoment.from_data(gnlib.whiten(data)), depth
    else:
        moment = gnlib.second_moment(data)
        expected = float(gnlib.condition_number(moment))
    found = gnlib.condition_number(gnlib.linear_gauss_newton(weights, moment))
    assert float(found) == pytest.approx(expected, rel=1e-9)


def test_what_orthogonal_weights_save_with_relus(page):
    kept = results.kept("deep-linear-relu")

    def middle(depth, kind, optimizer, column="hundredth"):
        of = {"depth": depth, "weights": kind, "optimizer": optimizer}
        values = [row[column] for row in kept if of.items() <= row.items()]
        assert len(values) == 3
        return np.median([np.inf if value is None else value for value in values])

    lines = [line.split() for line in table("deep-linear", "steps to a hundredth of the loss of guessing")]
    assert len(lines) == 11
    for depth, kind, *shown in lines:
        ways = (("descent", "kappa"), ("descent", "hundredth"), ("adam", "hundredth"))
        expected = [middle(int(depth), kind, *way) for way in ways]
        assert " ".join(shown) == " ".join(f"{x:.0f}" if np.isfinite(x) else "over 300" for x in expected)
    default, kaiming, orthogonal = (middle(10, kind, "adam") for kind in ("default", "Kaiming", "orthogonal"))
    assert f"at ten layers Adam takes {default:.0f} steps with it, and {kaiming:.0f} with Kaiming's weights" in page
    assert f"Adam takes {default / kaiming:.1f} times as many" in page
    assert round(middle(6, "default", "descent") / middle(6, "Kaiming", "descent")) == 5
    assert "At six layers gradient descent takes five times the steps" in page
    assert np.isinf(middle(10, "default", "descent")) and "At ten it does not arrive" in page
    assert middle(6, "default", "adam", "kappa") < middle(6, "Kaiming", "adam", "kappa")
    assert kaiming - orthogonal == 2 and f"and two of Adam's {kaiming:.0f}" in page
    saved = {
        depth: 1 - middle(depth, "orthogonal", "descent") / middle(depth, "Kaiming", "descent") for depth in (10, 20)
    }
    assert f"they save {100 * saved[10]:.0f} % of the steps of gradient descent" in page
    more = middle(6, "orthogonal", "descent") / middle(6, "Kaiming", "descent") - 1
    assert f"At six layers they cost {100 * more:.0f} % more steps of gradient descent." in page
    assert f"they take {100 * saved[20]:.0f} % fewer steps of gradient descent and two more of Adam" in page
    assert middle(20, "orthogonal", "adam") - middle(20, "Kaiming", "adam") == 2
    share = middle(20, "orthogonal", "adam", "kappa") / middle(20, "Kaiming", "adam", "kappa")
    assert 0.28 < share < 0.36 and "At twenty their $\\kappa$ is a third of that of Kaiming's weights" in page


def test_a_kept_row_of_the_relus_again():
    (row, *_) = trainings(0, 2, ["Kaiming"])
    same = {key: row[key] for key in ("weights", "depth", "seed", "optimizer", "tenth", "hundredth")}
    (kept,) = [other for other in results.kept("deep-linear-relu") if same.items() <= other.items()]
    assert kept["kappa"] == pytest.approx(row["kappa"], rel=1e-6)

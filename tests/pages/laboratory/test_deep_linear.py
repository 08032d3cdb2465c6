"""The numbers in the text of "Deep linear networks", and its findings."""

import inspect
import itertools
import math
import re
from functools import cache

import numpy as np
import pytest
import torch
from gnbook import results
from gnbook.deep_linear.orthogonal import WEIGHTS, trainings

import gnlib
from tests.pages.pages import ROOT, parameters, table

RANK, OUTPUTS = 587, 10


@cache
def means():
    """By figure, line and depth: condition numbers of the kept table, means over networks."""
    found = {}
    for row in results.kept("deep-linear"):
        found.setdefault((row["figure"], row["line"], row["depth"]), []).append(row["kappa"])
    return {key: np.mean(kappas) for key, kappas in found.items()}


def levels(factor):
    """By depth: condition numbers where the width is so many units for each layer of depth."""
    return {depth: kappa for (figure, line, depth), kappa in means().items() if (figure, line) == ("2b", factor)}


def level_from(factor):
    """The depth from which on they stay within a twentieth of their mean."""
    kappas = [*levels(factor).values()]
    flat = (max(abs(k / np.mean(kappas[at:]) - 1) for k in kappas[at:]) < 0.05 for at in range(len(kappas)))
    return [*levels(factor)][[*flat].index(True)]


@cache
def by_ratio():
    """By depth and ratio L r / m: condition numbers of the networks of both parts of figure 2."""
    found = {}
    for (figure, line, depth), kappa in means().items():
        width = line * (depth if figure == "2b" else 1)
        found.setdefault((depth, round(depth * RANK / width, 1)), []).append(kappa)
    return {point: np.mean(kappas) for point, kappas in found.items()}


def deep_points():
    """Ratios up to four, and condition numbers, of ten layers and more; those where several depths have one ratio."""
    points = sorted((ratio, kappa) for (depth, ratio), kappa in by_ratio().items() if depth >= 10 and ratio < 4)
    ratios = [ratio for ratio, _ in points]
    return points, sorted({ratio for ratio in ratios if ratios.count(ratio) > 1})


def of_four_layers():
    """Ratios above two and condition numbers."""
    return sorted((ratio, kappa) for (depth, ratio), kappa in by_ratio().items() if depth == 4 and ratio > 2)


def at_a_ratio_of_one():
    return [kappa for (depth, ratio), kappa in by_ratio().items() if depth >= 5 and ratio == 1]


def two_digits(value):
    return float(f"{value:.2g}")


def perturbed(depth, factor):
    """What perturbation theory says of networks of this width for each layer of depth."""
    below, above = roots(depth)
    return 1 + 4 / factor**0.5 * (RANK**0.5 * below + OUTPUTS**0.5 * above)


def roots(depth):
    below = (2 * depth - 1) / (6 * (depth - 1))
    return below**0.5, ((depth - 2) * (2 * depth - 3) / (6 * depth * (depth - 1))) ** 0.5


def lemma_2(depth):
    """By width: the bound over the condition number, of the first network."""
    rows = [row for row in results.kept("deep-linear") if (row["figure"], row["depth"]) == ("2a", depth)]
    return {row["line"]: row["lemma_2"] / row["kappa"] for row in rows if row["lemma_2"] is not None}


def bounds_over_kappa(column, images=("raw", "whitened")):
    lines = [line.split() for line in table("laboratory/deep-linear", "bounds over the condition number")]
    return [float(line[column]) for line in lines if line[0] in images]


def growth_with_depth(images):
    """Of CIFAR-10 from two layers to ten, by the kept table of "One hidden layer"."""
    rows = [row for row in results.kept("one-hidden-layer") if (row["figure"], row["images"]) == (19, images)]
    width = parameters("laboratory/one-hidden-layer")["cifar_width"]
    shallow, deep = (
        np.mean([r["kappa"] for r in rows if (r["width"], r["depth"]) == (width, depth)]) for depth in (2, 10)
    )
    return deep / shallow


def middle(depth, kind, optimizer, column="hundredth"):
    """The median over three networks with ReLUs, infinite where training does not arrive."""
    of = {"depth": depth, "weights": kind, "optimizer": optimizer}
    values = [row[column] for row in results.kept("deep-linear-relu") if of.items() <= row.items()]
    assert len(values) == 3
    return np.median([np.inf if value is None else value for value in values])


@cache
def white(stride=1):
    return gnlib.SecondMoment.from_data(gnlib.whiten(gnlib.load("mnist", 1000, stride=stride)[0]))


def of_third_exercise(depth):
    widths = [784, *[2000 * depth] * (depth - 1), OUTPUTS]
    networks = (gnlib.linear_weights(widths, generator=torch.Generator().manual_seed(seed)) for seed in range(3))
    return np.mean([float(gnlib.condition_number(gnlib.linear_gauss_newton(net, white()))) for net in networks])


def orthogonal(width, depth, moment):
    """The condition number with orthogonal weights."""
    inputs, generator = len(moment.basis), torch.Generator().manual_seed(0)
    shapes = [(width, inputs), *[(width, width)] * (depth - 2), (OUTPUTS, width)]
    weights = [torch.empty(shape, dtype=torch.float64) for shape in shapes]
    for weight in weights:
        torch.nn.init.orthogonal_(weight, generator=generator)
    return float(gnlib.condition_number(gnlib.linear_gauss_newton(weights, moment)))


@cache
def values():
    given, page = parameters("laboratory/deep-linear"), (ROOT / "notebooks/laboratory/deep-linear.md").read_text()
    widths, depths = (sorted({key[at] for key in means() if key[0] == "2a"}) for at in (1, 2))
    least, some, most = sorted({line for figure, line, _ in means() if figure == "2b"})
    exponents = [np.polyfit(*np.log([depths[1:5], [means()["2a", w, d] for d in depths[1:5]]]), 1)[0] for w in widths]
    narrow_steps = [means()["2a", widths[0], b] / means()["2a", widths[0], a] for a, b in itertools.pairwise(depths)]
    apart = [abs(means()["2a", widths[0], d] / means()["2a", widths[1], d] - 1) for d in depths]
    *_, rising, last = levels(least)
    (points, shared), four = deep_points(), of_four_layers()
    high, middle_ratio = (10 * RANK / width for width in widths[:2])
    same = [(d, means()["2a", w, d]) for d, w in zip((4, 8, 16), widths[1:], strict=True)]
    price = [784, *[most * 10] * 9, OUTPUTS]
    raw, adam = bounds_over_kappa(4, ["raw"]), [middle(10, kind, "adam") for kind in WEIGHTS]
    saved = {d: 1 - middle(d, "orthogonal", "descent") / middle(d, "Kaiming", "descent") for d in (6, 10, 20)}
    of_relus = [inspect.signature(trainings).parameters[name].default for name in ("width", "n")]
    return {
        "images": given["n"],
        "pixels": len(white().basis),
        "rank": white().basis.shape[1],
        "outputs": OUTPUTS,
        "widest": widths[-1],
        "deepest": depths[-1],
        "narrow": widths[0],
        "narrow_growth": round(means()["2a", widths[0], 20] / means()["2a", widths[0], 2], -1),
        "wide_growth": means()["2a", widths[-1], 20] / means()["2a", widths[-1], 2],
        "nearly_level": depths[np.argmin(narrow_steps) :][:2],
        "meet": depths[np.argmin(apart)],
        "orthogonal": orthogonal(784, 2, white()),
        "quadratic": widths[np.argmin(np.abs(np.subtract(exponents, 2)))],
        "quadratic_ratio": widths[np.argmin(np.abs(np.subtract(exponents, 2)))] / RANK,
        "adam": adam[:2],
        "adam_default": adam[0] / adam[1],
        "cifar_width": parameters("laboratory/one-hidden-layer")["cifar_width"],
        "raw_growth": growth_with_depth("raw"),
        "white_growth": growth_with_depth("whitened"),
        "few_inputs": given["hidden_inputs"],
        "factors": [least, some, most],
        "some_level_from": level_from(some),
        "most_level_from": level_from(most),
        "some_level": round(levels(some)[last], -1),
        "most_level": [end(k for d, k in levels(most).items() if d >= level_from(most)) for end in (min, max)],
        "rising_to": [rising, last],
        "rising": [levels(least)[rising], levels(least)[last]],
        "shared_ratios": shared,
        "near_one": np.mean(at_a_ratio_of_one()),
        "near_four": round(np.mean([kappa for ratio, kappa in points if ratio in shared]), -1),
        "shared": [end(kappa for ratio, kappa in points if ratio in shared) for end in (min, max)],
        "high_ratio": high,
        "at_high_ratio": [two_digits(by_ratio()[depth, round(high, 1)]) for depth in (10, 20)],
        "middle_ratio": middle_ratio,
        "at_middle_ratio": [two_digits(by_ratio()[depth, round(middle_ratio, 1)]) for depth in (10, 20)],
        "shallow_below": 10 * math.ceil(max(k for (d, _), k in by_ratio().items() if d <= 6) / 10),
        "price_width": most * 10,
        "price_millions": sum(a * b for a, b in itertools.pairwise(price)) / 1e6,
        "same_ratio": same[0][0] * RANK / widths[1],
        "of_same_ratio": [depth for depth, _ in same],
        "at_same_ratio": [kappa for _, kappa in same],
        "four_ratios": [four[0][0], four[-1][0]],
        "four": [end(kappa for _, kappa in four) for end in (min, max)],
        "root_of_two": roots(2)[0],
        "root_of_many": roots(10**9)[0],
        "hidden_root_of_two": 2**0.5,
        "first_order": perturbed(10, most),
        "measured_of_ten": levels(most)[10],
        "bounded": [800, 3200],
        "bound": [lemma_2(20)[width] for width in (800, 3200)],
        "bound_of_all": [end(lemma_2(20).values()) for end in (min, max)],
        "half_pixels": len(white(2).basis),
        "half_rank": white(2).basis.shape[1],
        "balance_width": given["balance_width"],
        "balance_depth": given["balance_depth"],
        "plain_width": int(re.search(r"^plain, white_49 = network\(8, (\d+),", page, re.M)[1]),
        "raw_bound": [min(raw), max(raw)],
        "sharper_per_cent": math.ceil(100 * (max(bounds_over_kappa(6)) - 1)),
        "relu": of_relus,
        "saved": [-100 * saved[6], 100 * saved[10], 100 * saved[20]],
        "saved_by_adam": [adam[1] - adam[2], middle(20, "orthogonal", "adam") - middle(20, "Kaiming", "adam")],
        "default_slower": middle(6, "default", "descent") / middle(6, "Kaiming", "descent"),
        "other_images": parameters("laboratory/deep-nonlinear")["n"],
        "public_depth": 3 - 1,  # the public code counts hidden layers, of three weight matrices
        "hidden_factors": given["hidden_growth"],
        "exercise_depths": [2, 3],
        "exercise": [perturbed(depth, 2000) for depth in (2, 3)],
        "exercise_measured": [of_third_exercise(depth) for depth in (2, 3)],
        "exercise_root": (RANK / 2000) ** 0.5,
    }


def test_the_growth_stops_at_the_two_larger_factors():
    least, some, most = values()["factors"]
    assert at_a_ratio_of_one() == pytest.approx([12.3] * 6, rel=0.04)
    assert [levels(some)[depth] for depth in (12, 14, 16)] == pytest.approx([110] * 3, rel=0.02)
    *_, before, rising, last = levels(least).values()
    differ = [row["kappa"] for row in results.kept("deep-linear") if (row["line"], row["depth"]) == (least, 16)]
    assert rising > 1.15 * before and np.std(differ, ddof=1) > last - rising > 0
    lines = [line.split() for line in table("laboratory/deep-linear", "κ where the width is c times the depth")]
    for line, factor in zip(lines, (most, some, least), strict=True):
        shown = [f"{levels(factor)[depth]:.0f}" if depth in levels(factor) else "-" for depth in (2, 4, 6, 10, 16)]
        assert line == [str(factor), f"{RANK / factor:.1f}", *shown]


def test_the_ratio_is_a_guide_from_ten_layers_on_up_to_four():
    points, shared = deep_points()
    assert [kappa for ratio, kappa in points if ratio in shared] == pytest.approx([100] * 6, rel=0.1)
    assert [kappa for _, kappa in points if _ not in shared] == sorted(k for ratio, k in points if ratio not in shared)
    assert max(depth for depth, ratio in by_ratio() if ratio == 1) == 10


def test_the_figure_by_the_ratio_is_described_by_its_numbers():
    """No anchor can stand in a text for those who do not see a figure."""
    page = (ROOT / "notebooks/laboratory/deep-linear.md").read_text()
    (alt,) = re.findall(r"name: by-the-ratio.*?alt: >(.*?)^---", page, re.M | re.S)
    of = {depth: [kappa for (at, _), kappa in sorted(by_ratio().items()) if at == depth] for depth in (2, 4, 6)}
    level = [np.mean(of[2]), np.mean(of[4][-3:]), np.mean(of[6][-3:])]
    at = values()
    known = [*level, 10, 16, 20, at["near_four"], at["at_high_ratio"][0], at["at_high_ratio"][1], at["high_ratio"]]
    numbers = [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", alt)]
    assert numbers == pytest.approx(known, rel=0.06)


def test_the_ratio_says_little_of_shallow_networks():
    for depth in (2, 4, 6):
        high = [kappa for (of, ratio), kappa in by_ratio().items() if of == depth and ratio > 3.5]
        assert max(high) < 1.25 * min(high)
    assert {round(levels(factor)[2]) for factor in values()["factors"]} == {5}


def test_kappa_improves_with_depth_where_it_counts_hidden_layers():
    few, many = (
        [float(kappa) for kappa in line.split()[1:]]
        for line in table("laboratory/deep-linear", "white data of 49 inputs, width")
    )
    assert many == sorted(many, reverse=True) and few[0] < few[1] and few[1:] == sorted(few[1:], reverse=True)


def test_the_terms_find_a_small_layer_and_no_uneven_one():
    plain, uneven, small = (
        line.rsplit(maxsplit=4)[1:] for line in table("laboratory/deep-linear", "white data of 49 inputs, ten")
    )
    assert float(uneven[0]) > 2 * float(plain[0]) and uneven[3] != "5"
    assert small[1] == small[2] and small[3] == "5"


@pytest.mark.parametrize("width", [20, 40, 60])
@pytest.mark.parametrize("depth", [2, 5, 20])
def test_orthogonal_layers_leave_the_condition_number_of_the_data(depth, width):
    """With fewer units than inputs it is the depth, for white data."""
    data = torch.randn(200, 49, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    if width < 49:
        moment, expected = gnlib.SecondMoment.from_data(gnlib.whiten(data)), depth
    else:
        moment = gnlib.SecondMoment.from_data(data)
        expected = float(moment.eigenvalues[0] / moment.eigenvalues[-1])
    assert orthogonal(width, depth, moment) == pytest.approx(expected, rel=1e-9)


def test_the_size_of_the_weights_comes_first_with_relus():
    lines = [line.split() for line in table("laboratory/deep-linear", "steps to a hundredth of the loss of guessing")]
    assert len(lines) == 11
    for depth, kind, *shown in lines:
        ways = (("descent", "kappa"), ("descent", "hundredth"), ("adam", "hundredth"))
        expected = [middle(int(depth), kind, *way) for way in ways]
        assert " ".join(shown) == " ".join(f"{x:.0f}" if np.isfinite(x) else "over 300" for x in expected)
    assert np.isinf(middle(10, "default", "descent"))
    assert middle(6, "default", "adam", "kappa") < middle(6, "Kaiming", "adam", "kappa")
    share = middle(20, "orthogonal", "adam", "kappa") / middle(20, "Kaiming", "adam", "kappa")
    assert share == pytest.approx(1 / 3, abs=0.04)


def test_a_kept_row_of_the_relus_again():
    (row, *_) = trainings(0, 2, ["Kaiming"])
    same = {key: row[key] for key in ("weights", "depth", "seed", "optimizer", "tenth", "hundredth")}
    (kept,) = [other for other in results.kept("deep-linear-relu") if same.items() <= other.items()]
    assert kept["kappa"] == pytest.approx(row["kappa"], rel=1e-6)

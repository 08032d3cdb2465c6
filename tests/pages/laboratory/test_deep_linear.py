"""The numbers in the text of "Deep linear networks", and its findings."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
import torch
from gnbook import results
from gnbook.deep_linear.orthogonal import WEIGHTS

import gnlib
from tests.pages.pages import cells, kappas, those

PAGE = "laboratory/deep-linear"
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


def roots(depth):
    below = (2 * depth - 1) / (6 * (depth - 1))
    return below**0.5, ((depth - 2) * (2 * depth - 3) / (6 * depth * (depth - 1))) ** 0.5


def lemma_2(depth):
    """By width: the bound over the condition number, of the first network."""
    rows = those("deep-linear", figure="2a", depth=depth)
    return {row["line"]: row["lemma_2"] / row["kappa"] for row in rows if row["lemma_2"] is not None}


def bounds_over_kappa(column, images=("raw", "whitened")):
    return [line[column] for line in cells(PAGE, "bounds over the condition number") if line[0] in images]


def middle(depth, kind, optimizer, column="hundredth"):
    """The median over three networks with ReLUs, infinite where training does not arrive."""
    values = kappas("deep-linear-relu", column, depth=depth, weights=kind, optimizer=optimizer)
    assert len(values) == 3
    return np.median([np.inf if value is None else value for value in values])


@cache
def white(stride=1):
    return gnlib.SecondMoment.from_data(gnlib.whiten(gnlib.load("mnist", 1000, stride=stride)[0]))


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
    widths, depths = (sorted({key[at] for key in means() if key[0] == "2a"}) for at in (1, 2))
    least, some, most = sorted({line for figure, line, _ in means() if figure == "2b"})
    exponents = [np.polyfit(*np.log([depths[1:5], [means()["2a", w, d] for d in depths[1:5]]]), 1)[0] for w in widths]
    *_, rising, _ = levels(least)
    price = [784, *[most * 10] * 9, OUTPUTS]
    raw, adam = bounds_over_kappa(4, ["raw"]), [middle(10, kind, "adam") for kind in WEIGHTS]
    return {
        "pixels": len(white().basis),
        "rank": white().basis.shape[1],
        "narrow_growth": round(means()["2a", widths[0], 20] / means()["2a", widths[0], 2], -1),
        "wide_growth": means()["2a", widths[-1], 20] / means()["2a", widths[-1], 2],
        "quadratic": widths[np.argmin(np.abs(np.subtract(exponents, 2)))],
        "quadratic_ratio": widths[np.argmin(np.abs(np.subtract(exponents, 2)))] / RANK,
        "adam_default": adam[0] / adam[1],
        "factors": [least, some, most],
        "some_level_from": level_from(some),
        "most_level_from": level_from(most),
        "rising_to": rising,
        "price_millions": sum(a * b for a, b in itertools.pairwise(price)) / 1e6,
        "root_of_two": roots(2)[0],
        "root_of_many": roots(10**9)[0],
        "bound": [lemma_2(20)[width] for width in (800, 3200)],
        "bound_of_all": [end(lemma_2(20).values()) for end in (min, max)],
        "half_pixels": len(white(2).basis),
        "half_rank": white(2).basis.shape[1],
        "raw_bound": [min(raw), max(raw)],
        "sharper_per_cent": math.ceil(100 * (max(bounds_over_kappa(6)) - 1)),
        "saved": 100 * (1 - middle(20, "orthogonal", "descent") / middle(20, "Kaiming", "descent")),
        "default_slower": middle(6, "default", "descent") / middle(6, "Kaiming", "descent"),
    }


def test_the_growth_stops_at_the_two_larger_factors():
    least, some, most = values()["factors"]
    *_, before, rising, last = levels(least).values()
    differ = kappas("deep-linear", line=least, depth=16)
    assert rising > 1.15 * before and np.std(differ, ddof=1) > last - rising > 0
    assert max(level_from(factor) for factor in (some, most)) < 20


def test_the_ratio_is_a_guide_from_ten_layers_on_up_to_four():
    """Ratios L r / m and condition numbers of both parts of figure 2; several depths have one ratio."""
    found = {}
    for (figure, line, depth), kappa in means().items():
        width = line * (depth if figure == "2b" else 1)
        found.setdefault((round(depth * RANK / width, 1), depth), []).append(kappa)
    points = sorted((ratio, np.mean(some)) for (ratio, depth), some in found.items() if depth >= 10 and ratio < 4)
    ratios = [ratio for ratio, _ in points]
    shared, single = ([kappa for r, kappa in points if (ratios.count(r) > 1) == many] for many in (True, False))
    assert shared == pytest.approx([100] * 6, rel=0.1) and single == sorted(single)


def test_kappa_improves_with_depth_where_it_counts_hidden_layers():
    few, many = (line[1:] for line in cells(PAGE, "white data of 49 inputs, width"))
    assert many == sorted(many, reverse=True) and few[0] < few[1] and few[1:] == sorted(few[1:], reverse=True)


def test_the_terms_find_a_small_layer_and_no_uneven_one():
    plain, uneven, small = (line[-4:] for line in cells(PAGE, "white data of 49 inputs, ten"))
    assert uneven[0] > 2 * plain[0] and uneven[3] != 5
    assert small[1] == small[2] and small[3] == 5


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
    assert np.isinf(middle(10, "default", "descent"))
    assert middle(6, "default", "adam", "kappa") < middle(6, "Kaiming", "adam", "kappa")
    share = middle(20, "orthogonal", "adam", "kappa") / middle(20, "Kaiming", "adam", "kappa")
    assert share == pytest.approx(1 / 3, abs=0.04)

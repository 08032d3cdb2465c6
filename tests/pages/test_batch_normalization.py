"""The numbers in the text of "Batch normalisation", and its findings."""

import re
from itertools import product

import numpy as np
import pytest
import torch

import gnlib
from tests.pages.pages import kept, parameters, rows

PAGE = "batch-normalization"
GIVEN = parameters(PAGE)
WAYS = "nothing", "divided", "mean subtracted", "BN"
MIDDLE = 128  # units of the factors in the text


def by_width():
    """By what is done to the units: κ at each width."""
    return {name: rows(PAGE, rf"{name} +(?=\d)")[0] for name in WAYS}


def convolutional():
    """By what is done to the units: κ with torch's default and with Kaiming's weights."""
    return {name: rows(PAGE, rf"{re.escape(name)} +torch's default")[0] for name in (*WAYS, "GroupNorm(1)")}


def white():
    """By width: κ on white images, without BN and with BN."""
    return {int(width): found for width, *found in rows(PAGE, r"(?=\d+ units: white)")}


def values():
    at = GIVEN["widths"].index(MIDDLE)
    factor = {name: by_width()["nothing"][at] / kappas[at] for name, kappas in by_width().items()}
    default = {name: convolutional()["nothing"][0] / kappas[0] for name, kappas in convolutional().items()}
    return {
        "middle": MIDDLE,
        "by_mean": factor["mean subtracted"],
        "by_division": factor["divided"],
        "by_both": factor["BN"],
        "checked": 100,
        "photos": GIVEN["photos"],
        "cnn_by_mean": default["mean subtracted"],
        "cnn_by_division": default["divided"],
    }


def test_subtracting_does_most_of_it():
    for nothing, divided, subtracted, both in zip(*by_width().values(), strict=True):
        assert nothing / subtracted > 10 and nothing / divided < 1.7 and both < subtracted < 2 * both


def test_bn_harms_white_images():
    assert [*white()] == GIVEN["widths"][::2]
    for plain, normalised in white().values():
        assert 8 < normalised / plain < 16
    predicted, measured = rows(PAGE, "predicted")[0]
    assert predicted == measured
    x = gnlib.whiten(gnlib.load("cifar10", GIVEN["n"], stride=GIVEN["stride"], grayscale=True)[0])
    values = torch.linalg.eigvalsh(torch.cov(x.mT, correction=0))
    assert (values[-1] / values[0]).item() == pytest.approx(predicted, abs=0.01)
    assert (values[1] / values[0]).item() == pytest.approx(predicted, abs=0.01)  # all others are one


def test_both_halves_do_more_than_their_product():
    halves = [kappas for name, kappas in convolutional().items() if name != "GroupNorm(1)"]
    default, kaiming = zip(*halves, strict=True)
    nothing, divided, subtracted, both = default
    assert nothing / both > 5 * (nothing / divided) * (nothing / subtracted)
    nothing, divided, subtracted, both = kaiming
    assert nothing / subtracted > 20 * nothing / divided and subtracted < 3 * both


def test_group_norm_acts_like_the_division():
    for group, divided, both in zip(
        *(convolutional()[name] for name in ("GroupNorm(1)", "divided", "BN")), strict=True
    ):
        assert 0.5 < group / divided < 2 and group > 40 * both


def test_bn_has_the_fewest_steps():
    ways = "nothing", "BN", "divided by deviation", "mean subtracted"
    cases = *product(["standardised"], ways[:2]), *product(["raw"], ways)
    shown = {case: rows(PAGE, rf"{', '.join(case)} +default +(?=\d)")[0] for case in cases}
    trained = kept("batch-normalization-further")
    for (images, units), steps in shown.items():
        for kaiming, median in zip((False, True), steps, strict=True):
            some = [row for row in trained if (row["images"], row["units"], row["kaiming"]) == (images, units, kaiming)]
            best = [min(row["steps"] or np.inf for row in some if row["seed"] == seed) for seed in range(3)]
            assert np.median(best) == median
    nothing, normalised, divided = (shown["raw", units] for units in ("nothing", "BN", "divided by deviation"))
    on_standardised = shown.pop(("standardised", "BN"))
    assert all(normalised[i] == min(steps[i] for steps in shown.values()) for i in (0, 1))
    assert all(0.8 < a / b < 1.2 for a, b in zip(on_standardised, normalised, strict=True))  # "change little"
    assert max(on_standardised) < min(min(steps) for case, steps in shown.items() if case[1] != "BN")
    assert all(a > 20 * b for a, b in zip(nothing, normalised, strict=True))
    assert nothing[0] / 2 < divided[0] < nothing[0] and divided[1] > nothing[1] >= nothing[0]


def test_group_norm_lies_between():
    trained = kept("what-predicts-training")
    for loss, optimizer in product(("mse", "cross_entropy"), ("descent", "momentum", "adam")):
        medians = []
        for family in ("CNN, BatchNorm", "CNN, GroupNorm", "CNN"):
            of = {"family": family, "loss": loss, "optimizer": optimizer}
            some = [row for row in trained if of.items() <= row.items()]
            medians.append(np.median([row["steps_tenth"] or np.inf for row in some]))
        assert medians == sorted(medians)

"""The numbers in the text of the lesson "Residual networks", and its findings."""

from functools import cache

import numpy as np
import pytest

import gnlib
from tests.pages.pages import kappas, named, parameters, rows

GIVEN = parameters("residual")


def numbers(start):
    return rows("residual", start)[0]


def divided(depth):
    """By what factor a skip of full strength divides the mean of the kept condition numbers."""
    without, whole = (kappas("residual", images="MNIST", width=800, depth=depth, skip=skip) for skip in ("no skip", 1))
    return np.mean(without) / np.mean(whole)


def gamma(b):
    return 1 - (b**2 / (1 + b**2)) ** 2


@cache
def by_mean_image():
    """In the laboratory: condition numbers without a skip and with three, by data set and preparation."""
    return {key: row[1:] for key, row in named("laboratory/residual", "κ, geometric mean of 3 networks", 2).items()}


def values():
    deep, standardised = max(GIVEN["depths"]), numbers("standardised kappa")
    return {
        "deep": [deep, gamma(1) * deep],
        "paper": 800,
        "full": [divided(2), divided(6)],
        "units": 200,
        "relu": standardised[0] / standardised[-1],
        "limits": [gnlib.laws.kappa(2 * sigma**2) for sigma in (1, 0.5)],
        "centred": by_mean_image()["MNIST", "centred"][::3],
    }


def test_only_branches_that_shrink_with_the_depth_bound_kappa():
    *growing, branches = rows("residual", r"(?:no skip|b = \S+) +kappa")
    (limit,) = numbers(r"kappa\(2 sigma\^2\) =")
    assert limit == pytest.approx(gnlib.laws.kappa(2 * GIVEN["sigma"] ** 2), abs=0.05)
    assert max(branches) < limit < 1.3 * branches[-1] and branches[-1] < 1.1 * branches[-2]
    assert all(curve[-1] > 3 * curve[-2] and curve[-1] > 30 * limit for curve in growing)


@pytest.mark.parametrize("sigma", [0.3, 0.5, 1, 1.5])
def test_the_law_of_branches_lies_below_its_limit_at_any_depth(sigma):
    law = [gnlib.laws.deep_linear(L, 1000, 1000, scale=sigma / L**0.5, skip=1.0).kappa for L in (2, 4, 8, 32, 512)]
    limit = gnlib.laws.kappa(2 * sigma**2)
    assert law == sorted(law) and 0.98 * limit < law[-1] < limit


def test_the_rise_on_raw_images_is_less_than_the_scatter():
    mean, lowest, highest = (numbers(f"raw +{name}") for name in ("kappa", "lowest", "highest"))
    assert max(mean) - mean[0] < highest[0] - lowest[0]
    assert all(low < middle < high for low, middle, high in zip(lowest, mean, highest, strict=True))


def test_with_relus_skips_lower_kappa_of_standardised_images_and_do_not_of_raw_ones():
    raw, standardised = numbers("raw          kappa"), numbers("standardised kappa")
    assert standardised == sorted(standardised, reverse=True) and min(raw[1:]) > raw[0] > 10 * standardised[0]
    assert max(raw) < 1.4 * raw[0]
    of = by_mean_image()
    assert [raw, standardised] == [of["CIFAR-10", "raw"], of["CIFAR-10", "standardised"]]  # networks of the laboratory

"""The numbers in the text of "The valley", and its findings."""

from functools import cache

import pytest
import torch
from torch import nn

import gnlib
from tests.pages.pages import descend, parameters, rows

GIVEN = parameters("gauss-newton")


def two_runs():
    """By name of the images: largest and smallest eigenvalue, κ and steps, as printed."""
    return {name: rows("gauss-newton", f"{name} +largest")[0] for name in ("raw", "centred")}


def shared():
    """By name of the images: curvature along what all images share, and its part in the steepest directions."""
    return {name: rows("gauss-newton", f"{name}: curvature")[0] for name in ("raw", "centred")}


def values():
    raw, centred = two_runs().values()
    ratios = {f"{name}_ratio": raw[i] / centred[i] for name, i in (("rate", 0), ("kappa", 2), ("step", 3))}
    return ratios | {"steeper": shared()["raw"][0] / shared()["centred"][0]}


def network():
    torch.manual_seed(0)
    hidden = GIVEN["hidden"]
    return nn.Sequential(nn.Linear(192, hidden), nn.ReLU(), nn.Linear(hidden, 10)).double()


@cache
def trained(name):
    """Return steps to the goal, network and rate after the steps of the page."""
    x, labels = gnlib.load("cifar10", GIVEN["n"], stride=4)
    z = {"raw": x, "centred": x - x.mean(0), "standardised": (x - x.mean()) / x.std()}[name]
    y, net = nn.functional.one_hot(labels, 10).double(), network()
    condition = gnlib.condition_number(net, z)
    rate, goal = 1 / condition.largest, 2 * len(z) * GIVEN["goal"]
    late = descend(net, z, y, goal, rate, GIVEN["steps"])
    descend(net, z, y, 0, rate, GIVEN["steps"] - late)
    return late, condition, net, z, rate


def test_two_runs():
    raw, centred = two_runs().values()
    assert round(raw[3] / centred[3]) == 14
    assert raw[3] < raw[2] / 15  # "long before kappa steps"
    assert 2.5 < centred[1] / raw[1] < 3.5  # "three times lower"


def test_relus_raise_the_smallest_eigenvalue():
    x, _ = gnlib.load("cifar10", GIVEN["n"], stride=4)
    for activation, least, most in ((nn.ReLU(), 2.5, 3.5), (nn.Identity(), 0.99, 1.01)):
        net = network()
        net[1] = activation
        raw, centred = (gnlib.condition_number(net, z).smallest for z in (x, x - x.mean(0)))
        assert least < centred / raw < most


@pytest.mark.nightly
def test_solution_of_exercise_1():
    late, condition, *_ = trained("standardised")
    _, _, of_centred, fewest = two_runs()["centred"]
    assert 0.5 < condition.value / of_centred < 0.65
    assert fewest < late < 1.3 * fewest
    largest, smallest, _, most = two_runs()["raw"]
    assert condition.largest == pytest.approx(largest, rel=0.03)
    assert round(most / late) == 12 and condition.smallest / smallest == pytest.approx(50, rel=0.05)


@pytest.mark.nightly
def test_solution_of_exercise_3():
    for name in ("raw", "centred"):
        _, _, net, z, rate = trained(name)
        assert 0.9 * rate < 2 / gnlib.condition_number(net, z).largest < 1.01 * rate

"""The numbers in the text of "ReLU", and its findings."""

import math

import numpy as np
import pytest

import gnlib
from gnlib.laws import relu_kernel
from tests.pages.pages import parameters, rows

N = parameters("relu")["n"]
KINDS = "raw", "centred", "white"


def networks():
    """By images and depth: κ by the recursion, and of the lowest and the highest network."""
    found = {name: rows("relu", f"{name} +L = ") for name in KINDS}
    return {(name, int(depth)): rest for name, some in found.items() for depth, *rest in some}


def cosines():
    raw = gnlib.load("mnist", N, stride=2)[0]
    images = {"raw": raw, "centred": raw - raw.mean(0), "white": gnlib.whiten(raw)}
    images = {name: x / x.norm(dim=1, keepdim=True) for name, x in images.items()}
    return {name: (x @ x.mT).numpy().clip(-1, 1) for name, x in images.items()}


def values():
    return {
        "pair_linear": rows("relu", "Identity +kappa")[0][0],
        "pair_relu": rows("relu", "ReLU +kappa")[0][0],
        "width": parameters("relu")["width"],
        "off": max(max(law / low, high / law) for law, low, high in networks().values()),
        "n": N,
        "white_two": networks()["white", 2][0],
    }


def test_the_recursion_is_that_of_the_library():
    assert len(networks()) == 9
    for (name, depth), (law, *_) in networks().items():
        assert law == pytest.approx(np.linalg.cond(relu_kernel(cosines()[name], depth)), rel=1e-3, abs=0.06)


def test_the_limit_is_that_of_any_images():
    for some in cosines().values():
        assert np.linalg.cond(relu_kernel(some, 20_000)) == pytest.approx((N + 3) / 3, rel=0.003)
    _, low, high, kappa = rows("relu", "L = ")[-1]
    assert low >= 0.25 and high < 0.253 and kappa == pytest.approx((N + 3) / 3, rel=0.005)


def test_only_white_images_begin_below_the_limit():
    for name in KINDS:
        assert (networks()[name, 2][0] < (N + 3) / 3) == (name == "white")
    assert values()["white_two"] == pytest.approx(1 + N / (2 * math.pi - 1), abs=0.05)


def test_the_images_decide_which_force_wins():
    """By images: κ from a linear network to a ReLU."""
    raw, centred, white = (rows("relu", rf"{name} +(?=\d)")[0] for name in KINDS)
    assert raw == sorted(raw, reverse=True) and raw[0] > 10 * raw[-1]
    assert white == sorted(white) and white[-1] > 5 * white[0]
    assert white[-1] < centred[-1] < raw[-1]  # "with a ReLU too"
    assert centred[:4] == sorted(centred[:4], reverse=True) and abs(centred[-1] / centred[-2] - 1) < 0.1


def test_preparing_matters_more_than_the_slope():
    """As the page prints it."""
    taken = {name: rows("relu", f"{name} +slope 0.2:")[0] for name in KINDS}
    for leaky, relu in taken.values():
        assert 1 / 2 < leaky / relu < 2
    for name in ("centred", "white"):
        assert all(prepared <= 0.27 * raw for prepared, raw in zip(taken[name], taken["raw"], strict=True))


def test_networks_follow_the_recursion():
    for (name, _), (law, low, high) in networks().items():
        assert law / 2.5 < low <= high < 2.5 * law
        assert name != "white" or low > law
    above = [low / law for (name, _), (law, low, _) in sorted(networks().items()) if name == "white"]
    assert above == sorted(above) and above[-1] > 1.5

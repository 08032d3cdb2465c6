"""The numbers in the text of "Leaky ReLU" beside its slider are those that the slider shows."""

import re

import pytest

from tests.book.pages import prose, slider


@pytest.fixture(scope="module")
def text():
    return prose("notebooks/leaky-relu")


@pytest.fixture(scope="module")
def frames():
    return slider("leaky-relu")


@pytest.fixture(scope="module")
def kappas(frames):
    """Those of white and of raw images for each slope."""
    words = [re.fullmatch(r"(\S+), κ (\S+) \| (\S+)", name).groups() for name in frames]
    return {float(slope): (float(white), float(raw.replace(",", ""))) for slope, white, raw in words}


def test_condition_numbers_beside_the_slope(text, kappas):
    (a, b), (c, d), (e, f) = kappas[1], kappas[0], kappas[-1]
    assert f"that of the white images grows from {a:.0f} to {c:.0f}, because" in text
    assert f"that of the raw images falls from {b:,.0f} to {d:,.0f}, because" in text
    assert f"Beyond the ReLU both go on, to {e:.0f} and {f:,.0f}." in text


def test_ten_eigenvalues_of_white_images_leave_the_others_behind(text, frames):
    assert "ten eigenvalues, one for each output, leave the others behind" in text
    for name, (white, _) in frames.items():
        points = dict(zip(*white, strict=True))
        next_one, last = points[min(x for x in points if x > 10)], points[max(points)]
        assert next_one < 4 * last  # the others stay together
        if float(name.split(",")[0]) <= 0:
            assert points[10] > 10 * next_one and points[1] < 1.01 * points[10]


def test_the_slider_goes_from_no_activation_to_the_absolute_value(text, kappas):
    assert "All eigenvalues of $\\widehat G$ for the first 100 images of MNIST" in text
    assert [*kappas] == sorted(kappas, reverse=True) and max(kappas) == 1 and min(kappas) == -1

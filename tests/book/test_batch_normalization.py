"""What the text of "Batch normalisation" says of its tables is what they show."""

import math

import pytest

from tests.book.pages import prose, table


@pytest.fixture(scope="module")
def text():
    return prose("notebooks/batch-normalization")


@pytest.fixture(scope="module")
def kappas():
    """From how the images and the hidden units are prepared to what Kaiming's weights and torch's default give."""
    lines = [line.split() for line in table("batch-normalization", "convolutional network, 20 colour images")]
    return {(line[0], " ".join(line[1:-2])): [float(cell.replace(",", "")) for cell in line[-2:]] for line in lines}


def test_share_of_centring_at_each_width(text):
    lines = table("batch-normalization", "condition number, means over 5 networks; share")
    rows = [[float(cell) for cell in line.split()] for line in lines]
    assert f"nearly all of the gain in narrow networks, and {rows[-1][-1]:.2f} of it in the widest" in text
    assert all(0.8 < row[-1] <= 1.02 for row in rows)


def test_range_of_the_improvement(text):
    found = [float(line.split()[-1]) for line in table("batch-normalization", "means over 5 networks; BN improves")]
    assert f"by a factor of {math.floor(min(found))} to {math.ceil(max(found))}." in text


def test_kaiming_weights_gain_by_subtracting(text, kappas):
    raw, centred, subtracted, divided, whole = (
        kappas[key][0]
        for key in (
            ("raw", "nothing"),
            ("centred", "nothing"),
            ("raw", "mean subtracted"),
            ("raw", "divided by deviation"),
            ("raw", "BN"),
        )
    )
    assert "Centring the images divides $\\kappa$ by about ten" in text and 8 < raw / centred < 13
    assert whole < subtracted < centred < divided < raw


def test_the_default_weights_gain_by_dividing_and_by_both_halves_most(text, kappas):
    raw, centred, standardised, subtracted, divided, whole = (
        kappas[key][1]
        for key in (
            ("raw", "nothing"),
            ("centred", "nothing"),
            ("standardised", "nothing"),
            ("raw", "mean subtracted"),
            ("raw", "divided by deviation"),
            ("raw", "BN"),
        )
    )
    assert "With torch's default centring does next to nothing." in text and raw / centred < 2
    assert max(standardised, divided) < raw / 10
    assert "multiply their two factors, and it is still ahead" in text
    assert raw / whole > (raw / subtracted) * (raw / divided)

"""The numbers in the text of "What a condition number costs" that its tables show."""

import pytest

from tests.pages.pages import cells, named


def test_the_direct_way():
    rows = cells("laboratory/cost", "perceptrons of two hidden layers, 20 images")
    parameters, ours, *_, counted = zip(*rows, strict=True)
    assert 5 < ours[-1] / ours[0] < 20
    assert 200 * parameters[-1] * 8 / 2**20 == pytest.approx(counted[-1], rel=0.01)


def test_what_fits_into_a_minute_and_an_hour():
    rows = cells("laboratory/cost", "samples in the largest batch, for both ends of the spectrum")
    small, large = ([row[-2] for row in some] for some in (rows[:4], rows[4:]))
    assert 200 / 2 <= min(small) and max(small) < 1000
    assert 5 / 2 <= min(large) <= 5 * 2 and 15 / 2 <= max(large) <= 15 * 2


def test_what_three_of_ten_outputs_keep():
    found = named("laboratory/cost", "the CNN above, up to 80 images and ten outputs")
    assert found["three of the outputs"][-1] / found["all"][-1] == pytest.approx(0.5, abs=0.06)

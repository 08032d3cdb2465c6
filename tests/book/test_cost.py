"""The numbers in the text of "What a condition number costs" that its tables show."""

import pytest

from tests.book.pages import prose, table


def test_a_report_costs_some_six_condition_numbers():
    (line,) = (line for line in table("cost", "the CNN above, 40 images, cross-entropy") if "gnlib.report" in line)
    assert "expect a report without Adam in some six" in prose("notebooks/cost")
    assert float(line.split()[-1]) == pytest.approx(6, abs=1.5)


def test_what_fits_into_a_minute_and_an_hour():
    lines = table("cost", "samples in the largest batch, for both ends of the spectrum")
    large = [line.split()[-2:] for line in lines if line.startswith(("ResNet-50", "language model"))]
    assert "take up to an hour on one thread, and five of them up to a minute" in prose("notebooks/cost")
    assert large == [["5", "50"]] * 2

"""The numbers in the text of "What a condition number costs" that its tables show."""

import pytest

from tests.book.pages import prose, table


def test_a_report_costs_some_six_condition_numbers():
    (line,) = (line for line in table("cost", "the CNN above, 40 images, cross-entropy") if "gnlib.report" in line)
    assert "expect a report without Adam in some six" in prose("notebooks/cost")
    assert float(line.split()[-1]) == pytest.approx(6, abs=1.5)


def test_what_the_calls_take():
    lines = table("cost", "the CNN above, 40 images, cross-entropy")
    seconds, share = {line.split()[0]: line.split()[-2:] for line in lines}["gnlib.cost"]
    assert f"`gnlib.cost(module, x)` | {seconds} s for the CNN of this page" in prose("notebooks/cost")
    assert float(share) < 1
    (line,) = (line for line in lines if "gnlib.forecast" in line)
    assert "[some two condition numbers]" in prose("notebooks/cost")
    assert float(line.split()[-1]) == pytest.approx(2, abs=0.5)


def test_what_fits_into_a_minute_and_an_hour():
    lines = table("cost", "samples in the largest batch, for both ends of the spectrum")
    large = [line.split()[-2:] for line in lines if line.startswith(("ResNet-50", "language model"))]
    assert "take up to an hour on one thread, and five of them up to a minute" in prose("notebooks/cost")
    assert large == [["5", "50"]] * 2
    said = "A minute affords some hundreds of samples of a small network, and five to fifteen of a large one."
    assert said in prose("notebooks/cost")
    minute = [int(line.split()[-2]) for line in lines]
    assert min(minute[:4]) >= 200 and max(minute[:4]) < 1000
    assert (min(minute[4:]), max(minute[4:])) == (5, 15)
    hour = [float(line.split()[-1]) for line in lines if line.startswith(("ResNet-50", "language model"))]
    assert "from some seconds to about a minute for each sample" in prose("notebooks/cost")
    assert all(60 <= 3600 / most < 80 for most in hour) and 60 / max(minute[4:]) < 5

"""Liu, Zhu and Belkin 2020, figures 1 and 2: statements of pages on the kept table."""

import numpy as np
import pytest
import scipy
from gnbook import figures, results

KEPT = results.kept("when-the-kernel-moves-further")
EXPONENTS = {  # of the width of the bottleneck: from 50 units on, from all, and half the interval of that
    "as printed": (-0.71, -0.74, 0.05),
    "with biases": (-0.72, -0.86, 0.05),
    "and a factor": (-0.74, -0.66, 0.04),
}


def rows(figure, **values):
    return [row for row in KEPT if row["figure"] == figure and values.items() <= row.items()]


def changes(figure, mark, **values):
    """The marks, and the largest changes of the kernel at each."""
    return figures.by_mark(rows(figure, **values), mark, "change")


def exponent(marks, values):
    """Slope and half its confidence interval of 95 %."""
    values, marks = np.concatenate(values), np.repeat(marks, list(map(len, values)))
    fit = scipy.stats.linregress(np.log(marks), np.log(values))
    return fit.slope, scipy.stats.t.ppf(0.975, values.size - 2) * fit.stderr


def test_the_kernel_of_a_linear_output_tends_to_be_constant():
    widths, found = changes(1, "width", network="linear")
    medians = [np.median(some) for some in found]
    assert (np.diff(medians) < 0).all() and medians[0] == pytest.approx(0.88, abs=0.01) and max(found[-1]) < 1e-3
    slope, half = exponent(widths, found)
    assert (round(slope, 2), round(half, 2)) == (-0.76, 0.02)


def test_that_of_swish_changes_by_about_seven_tenths_at_each_width():
    widths, found = changes(1, "width", network="swish")
    assert all(0.63 < np.median(some) < 0.74 for some in found)
    slope, half = exponent(widths, found)
    assert abs(slope) < half


def test_that_of_softmax_ends_at_one_and_is_far_above_it_on_the_way():
    assert all(abs(row["end"] - 1) < 1e-3 for row in rows(1, network="softmax"))
    _, found = changes(1, "width", network="softmax")
    assert min(map(min, found)) > 0.999 and min(max(some) for some in found[2:]) > 200


def test_the_cross_entropy_reaches_its_goal_and_the_squared_error_of_swish_does_not():
    assert {row["status"] for row in rows(1, network="linear")} == {"reached"}
    assert all(row["status"] != "reached" and row["loss"] > 1e-2 for row in rows(1, network="swish"))


@pytest.mark.parametrize("reading", EXPONENTS)
def test_the_kernel_changes_less_the_wider_the_bottleneck(reading):
    marks, found = changes(2, "bottleneck", reading=reading)
    assert (np.diff([np.median(some) for some in found]) < 0).all() and marks[3] == 50
    numbers = exponent(marks[3:], found[3:])[0], *exponent(marks, found)
    assert tuple(round(number, 2) for number in numbers) == EXPONENTS[reading]


def test_with_biases_all_runs_but_one_reach_the_goal_and_without_them_none():
    ends = [(row["reading"], row["bottleneck"], row["status"]) for row in rows(2) if row["status"] != "reached"]
    short = {end for end in ends if end[0] != "as printed"}
    assert short == {("with biases", 3, "stalled"), ("and a ReLU", 5, "stalled")}
    assert len(rows(2, reading="as printed")) == sum(end[0] == "as printed" for end in ends)
    assert min(row["loss"] for row in rows(2, reading="as printed")) > 0.2

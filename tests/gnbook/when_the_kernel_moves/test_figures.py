"""Liu, Zhu and Belkin 2020, figures 1 and 2: statements of pages on the kept table."""

import numpy as np
import pytest
from gnbook import figures, results

KEPT = results.kept("when-the-kernel-moves-further")


def rows(figure, **values):
    return [row for row in KEPT if row["figure"] == figure and values.items() <= row.items()]


def changes(figure, mark, **values):
    """The largest changes of the kernel at each mark."""
    return figures.by_mark(rows(figure, **values), mark, "change")[1]


def test_the_kernel_of_a_linear_output_tends_to_be_constant_that_of_swish_does_not_and_that_of_softmax_ends_at_one():
    found = changes(1, "width", network="linear")
    medians = [np.median(some) for some in found]
    assert (np.diff(medians) < 0).all() and medians[0] == pytest.approx(0.88, abs=0.01) and max(found[-1]) < 1e-3
    assert all(0.63 < np.median(some) < 0.74 for some in changes(1, "width", network="swish"))
    assert all(abs(row["end"] - 1) < 1e-3 for row in rows(1, network="softmax"))
    found = changes(1, "width", network="softmax")
    assert min(map(min, found)) > 0.999 and min(max(some) for some in found[2:]) > 200


def test_the_cross_entropy_reaches_its_goal_and_the_squared_error_of_swish_does_not():
    assert {row["status"] for row in rows(1, network="linear")} == {"reached"}
    assert all(row["status"] != "reached" and row["loss"] > 1e-2 for row in rows(1, network="swish"))


def test_the_kernel_changes_less_the_wider_the_bottleneck_and_without_biases_no_run_reaches_the_goal():
    for reading in ("as printed", "with biases", "and a factor"):
        assert (np.diff([np.median(some) for some in changes(2, "bottleneck", reading=reading)]) < 0).all()
    short = [row for row in rows(2) if row["status"] != "reached"]
    printed = rows(2, reading="as printed")
    assert [row for row in short if row["reading"] == "as printed"] == printed
    assert min(row["loss"] for row in printed) > 0.2
    ends = {(row["reading"], row["bottleneck"], row["status"]) for row in short if row not in printed}
    assert ends == {("with biases", 3, "stalled"), ("and a ReLU", 5, "stalled")}

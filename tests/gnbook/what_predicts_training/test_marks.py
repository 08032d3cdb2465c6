"""Marks of rank correlations stand where their numbers are."""

import numpy as np
import pytest
from gnbook import figures
from gnbook.what_predicts_training.correlations import Interval
from gnbook.what_predicts_training.marks import APART, marks, side_by_side
from gnbook.what_predicts_training.table import order

FOUND = {
    "one": [Interval(0.5, 0.25, 0.75), Interval(-0.5, -1.0, 0.0)],
    "two": [Interval(0.125, 0.0, 0.25), Interval(np.nan, np.nan, np.nan)],
}


@pytest.fixture
def axis():
    _, (axis,) = figures.panels(1)
    marks(axis, ["a name", "b"], FOUND)
    return axis


def test_each_mark_is_at_its_value_on_the_row_of_its_name(axis):
    drawn = {container.get_label(): container[0].get_xydata() for container in axis.containers}
    assert drawn["one"] == pytest.approx(np.array([[0.5, APART / 2], [-0.5, 1 + APART / 2]]))
    assert drawn["two"][0] == pytest.approx([0.125, -APART / 2]) and np.isnan(drawn["two"][1, 0])
    assert [label.get_text() for label in axis.get_yticklabels()] == ["a name", "b"]


def test_each_line_reaches_from_end_to_end(axis):
    lines = [container[2][0].get_segments() for container in axis.containers]
    assert [segment[:, 0].tolist() for segment in lines[0]] == [[0.25, 0.75], [-1.0, 0.0]]
    assert lines[1][0][:, 0].tolist() == [0.0, 0.25]


def test_no_two_labels_have_the_same_mark(axis):
    looks = {(container[0].get_color(), container[0].get_marker()) for container in axis.containers}
    assert len(looks) == len(FOUND)


def test_labels_of_another_kind_have_other_colours_and_marks(axis):
    _, (other,) = figures.panels(1)
    marks(other, ["a name", "b"], FOUND, first=len(FOUND))
    colors, shapes = (
        [{getattr(container[0], look)() for container in some.containers} for some in (axis, other)]
        for look in ("get_color", "get_marker")
    )
    assert not colors[0] & colors[1] and not shapes[0] & shapes[1]


def test_each_panel_has_the_correlations_of_its_title_and_none_where_nothing_was_run():
    some = [{"family": "ab"[i % 2], "initial_loss": -i, "kappa": i, "steps_tenth": i} for i in range(6)]
    names = ["kappa", "initial_loss"]
    found = order(some, names=names)
    left, right = side_by_side({"left": {"one": found, "two": None}, "right": {"one": None, "two": found}}, names)
    assert (left.get_title(), right.get_title()) == ("left", "right")
    for axis, run in ((left, "one"), (right, "two")):
        for container in axis.containers:
            drawn = container[0].get_xdata()
            assert drawn == pytest.approx([1, -1]) if container.get_label() == run else np.isnan(drawn).all()

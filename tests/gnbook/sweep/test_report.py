"""The figures that a grid declares, drawn from the table."""

import json

import pytest
from gnbook.sweep.report import report
from gnbook.sweep.table import merge, save

from tests.gnbook.sweep.helpers import finish

bad_input = pytest.mark.bad_input


def test_the_declared_figures_are_drawn(plan, folder):
    for number, run in enumerate(plan.runs):
        finish(folder, run, [{"step": step, "value": number + step, "bound": 9} for step in range(3)] + [{"value": 1}])
    save(merge(folder, plan.runs), folder.path)
    (folder.path / "sweep.json").write_text(json.dumps({"notebook": "", "figures": plan.grid.figures}))
    (path,) = report(folder.path)
    assert path == folder.path / "f.png" and path.read_bytes().startswith(b"\x89PNG")


@bad_input
@pytest.mark.parametrize(
    ("figure", "complaint"),
    [
        ({"y": "no such"}, "needs the column 'no such'; the table has width"),
        ({"where": {"width": 77}}, "has no row for the figure 'f'"),
        (None, "declares no figures"),
    ],
)
def test_a_figure_that_cannot_be_drawn_is_told_why(figure, complaint, plan, folder):
    finish(folder, plan.runs[0], [{"step": 1, "value": 1.0}])
    save(merge(folder, plan.runs), folder.path)
    figures = [] if figure is None else [{"name": "f", "x": "step", "y": "value", **figure}]
    (folder.path / "sweep.json").write_text(json.dumps({"notebook": "", "figures": figures}))
    with pytest.raises(ValueError, match=complaint):
        report(folder.path)


@bad_input
def test_a_folder_without_a_table_has_no_figures(tmp_path):
    with pytest.raises(FileNotFoundError, match="run the sweep first"):
        report(tmp_path)

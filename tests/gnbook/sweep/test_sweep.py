"""Sweeps as the command line starts them: what is shown, what is counted, and what wrong input is told."""

import importlib
import json
import runpy
import shutil
import sys
from dataclasses import replace

import pytest
from gnbook.sweep.__main__ import main
from gnbook.sweep.plan import preview
from gnbook.sweep.table import merge, save

from tests.gnbook.sweep.helpers import finish, read_table

bad_input = pytest.mark.bad_input


def command(notebook, tmp_path, grid, *options):
    path = tmp_path / "grid.yml"
    path.write_text(json.dumps(grid))
    return main([str(notebook), "--grid", str(path), "--out", str(tmp_path / "out"), *map(str, options)])


def test_a_dry_run_shows_the_cases_and_how_long_they_take_and_touches_nothing(notebook, plan, folder, tmp_path, capsys):
    grid = {"product": {"width": [1, 2], "sizes": [[1], [2]]}}
    shutil.rmtree(folder.path)
    assert command(notebook, tmp_path, grid, "--dry-run", "--workers", 2) == 0
    said = capsys.readouterr().out
    assert said.count("to do") == 5 and "4 cases: 0 done, 4 to do." in said
    assert "width=2, sizes=[1]" in said and "No run has finished yet" in said
    assert not folder.path.exists()

    folder.prepare()
    finish(folder, plan.runs[1], [], seconds=120)
    assert "About 4 minutes with 2 workers" in preview(plan, folder, 2)
    assert "About 6 minutes with 1 workers" in preview(plan, folder, 1)


@bad_input
@pytest.mark.parametrize(
    ("grid", "options", "complaint"),
    [
        ({"product": {"widht": [1]}}, (), "did you mean 'width'?"),
        ({"product": {"width": [1]}}, ("--workers", 0), "workers must be positive"),
        ({"product": {"width": [1]}}, ("--memory", "plenty"), "memory is a number of bytes or a text such as '4GiB'"),
        ({"product": {"width": [1]}}, ("--device", "cuda"), "has no parameter 'device'"),
        ({"product": {"width": [1]}}, ("--device", "auto", "--scheduler", "x"), "say device cpu or cuda"),
    ],
)
def test_bad_input_is_one_line_and_status_2_before_anything_is_written(
    grid, options, complaint, notebook, tmp_path, capsys
):
    assert command(notebook, tmp_path, grid, *options) == 2
    said = capsys.readouterr().err
    assert complaint in said and said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_runs_of_an_older_version_are_counted_and_kept_apart(notebook, plan, folder, tmp_path, capsys):
    grid = {"product": {"width": [1, 2], "sizes": [[1], [2]]}, "figures": [{"name": "f", "x": "width", "y": "value"}]}
    older = [replace(run, name=f"{number:020x}") for number, run in enumerate(plan.runs[:3])]
    for run in older:
        finish(folder, run, [{"value": -1.0}], digest="of before")
    save(merge(folder, older), folder.path)
    said = (
        "another version of the notebook, gnlib or the data: 3; they stay as they are, and the table leaves them out."
    )
    assert command(notebook, tmp_path, grid, "--dry-run") == 0
    shown = capsys.readouterr().out
    assert shown.count(said) == 1 and "4 cases: 0 done, 4 to do." in shown

    for number, run in enumerate(plan.runs):
        finish(folder, run, [{"value": float(number)}], digest=plan.digest)
    assert command(notebook, tmp_path, grid) == 0
    shown = capsys.readouterr().out
    assert "4 cases: 4 done before" in shown and shown.count(said) == 1
    table = read_table(folder)
    assert list(table.value) == [0, 1, 2, 3] and list(table.run_name) == [run.name for run in plan.runs]
    assert main(["report", str(folder.path)]) == 0
    assert capsys.readouterr().out.count(said) == 1
    assert {path.name for path in folder.runs.iterdir()} == {run.name for run in (*older, *plan.runs)}
    for run in older:
        shutil.rmtree(folder.runs / run.name)
    assert command(notebook, tmp_path, grid) == 0
    assert "another version" not in capsys.readouterr().out


def test_the_command_of_before_says_where_it_went(monkeypatch):
    monkeypatch.delitem(sys.modules, "gnlib.sweep", raising=False)  # runpy warns of a module that is there already
    with pytest.raises(SystemExit, match=r"python -m gnbook\.sweep"):
        runpy.run_module("gnlib.sweep", run_name="__main__")
    with pytest.raises(AttributeError, match="from gnbook import sweep"):
        importlib.import_module("gnlib.sweep").record([])

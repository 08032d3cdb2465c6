"""The parts of a sweep before any notebook runs: rows, folder, table and figures, and the command line."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import gnbook.sweep
import numpy as np
import pandas
import pytest
import torch
from gnbook.sweep.__main__ import main
from gnbook.sweep.execute import Outcome, Settings, execute, gpu_of_worker
from gnbook.sweep.plan import preview
from gnbook.sweep.report import report
from gnbook.sweep.table import merge, save


def test_rows_of_all_calls_are_kept_with_scalars_as_plain_values(tmp_path, monkeypatch):
    path = tmp_path / "rows.json"
    monkeypatch.setenv("GNLIB_SWEEP_ROWS", str(path))
    gnbook.sweep.record([{"a": np.float64(0.1), "b": torch.tensor(3)}])
    gnbook.sweep.record({"c": value} for value in (None, True, "text", float("inf")))
    rows = [{"a": 0.1, "b": 3}, *({"c": value} for value in (None, True, "text", float("inf")))]
    assert json.loads(path.read_text()) == {"device": "cpu", "rows": rows}


def test_a_chapter_can_record_where_nothing_is_installed_for_sweeps():
    code = """
import sys, gnbook, gnlib
before = {name.partition(".")[0] for name in sys.modules}
import gnbook.sweep
after = {name.partition(".")[0] for name in sys.modules}
print(*(after - before - sys.stdlib_module_names))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_a_worker_refuses_another_library_and_does_no_finished_run_again(notebook, plan, folder, finish):
    shared = {"folder": folder.path, "notebook": notebook, "directory": notebook.parent, "provenance": {}}
    settings = Settings(**shared, digest="another", timeout=100, memory=2**40, threads=1, gpus=())
    assert "gnlib or gnbook has changed since the sweep began" in execute(settings, "name", {}).error
    finish(plan.runs[0], [])
    name = plan.runs[0].name
    assert execute(replace(settings, digest=plan.digest), name, {}) == Outcome(name, None, 2.0, 2**20)
    assert list(folder.unfinished.iterdir()) == []


def test_each_worker_has_a_gpu_of_its_own():
    assert [gpu_of_worker(worker, ("2", "5")) for worker in range(4)] == ["2", "5", "2", "5"]


def test_a_run_of_which_a_crash_left_half_a_report_is_run_again(plan, folder, finish):
    finish(plan.runs[0], [])
    (folder.runs / plan.runs[0].name / "run.json").write_text('{"versions"')
    assert folder.finished(plan.runs[0].name) is None
    assert not (folder.runs / plan.runs[0].name).exists()


HOLD = """
import sys, time
from pathlib import Path
from gnbook.sweep.folder import Folder

with Folder(Path(sys.argv[1])).locked():
    print("locked", flush=True)
    time.sleep(3600)
"""


def test_a_folder_is_locked_until_its_sweep_ends_or_dies(folder):
    with folder.locked(), pytest.raises(BlockingIOError, match=rf"\(process {os.getpid()} on "), folder.locked():
        pass
    with subprocess.Popen([sys.executable, "-c", HOLD, folder.path], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "locked\n"
            with pytest.raises(BlockingIOError, match=rf"at work in .* \(process {other.pid} on "), folder.locked():
                pass
        finally:
            other.kill()
    with folder.locked():
        pass


def test_the_table_has_the_rows_of_finished_runs_in_the_order_of_the_grid_and_its_figures_are_drawn(
    plan, folder, finish
):
    for number in (3, 1, 0):  # the order in which they finish is another
        rows = [{"step": step, "value": number / 7, "bound": 9} for step in range(2)]
        finish(plan.runs[number], rows)
    table = merge(folder, plan.runs)
    assert list(table.columns[:5]) == ["width", "sizes", "step", "value", "bound"]
    assert all(column.startswith("run_") for column in table.columns[5:])
    assert list(table.sizes) == ["[1]", "[1]", "[2]", "[2]", "[2]", "[2]"]
    save(table, folder.path)
    read = pandas.read_parquet(folder.path / "table.parquet")
    assert list(read.value) == [0, 0, 1 / 7, 1 / 7, 3 / 7, 3 / 7]  # to the last digit
    assert list(pandas.read_csv(folder.path / "table.csv").value) == list(read.value)
    assert set(read.run_memory_mib) == {1.0} and set(read.run_seconds) == {2.0}
    (folder.path / "sweep.json").write_text(json.dumps({"notebook": "", "figures": plan.grid.figures}))
    (path,) = report(folder.path)
    assert path == folder.path / "f.png" and path.read_bytes().startswith(b"\x89PNG")


def test_rows_may_differ_in_columns_and_types_and_runs_may_have_none(plan, folder, finish):
    finish(plan.runs[0], [{"a": 1, "width": 99, "count": 2}])
    finish(plan.runs[1], [{"a": "text", "b": None}])
    finish(plan.runs[2], None)
    save(merge(folder, plan.runs), folder.path)
    table = pandas.read_parquet(folder.path / "table.parquet")
    assert list(table.a[:2]) == ["1", "text"] and table.a.isna()[2]
    assert list(table.width) == [99, 1, 2]  # a row knows better than its run
    assert table["count"].dtype == "Int64" and table["count"][0] == 2


def command(notebook, tmp_path, grid, *options):
    path = tmp_path / "grid.yml"
    path.write_text(json.dumps(grid))
    return main([str(notebook), "--grid", str(path), "--out", str(tmp_path / "out"), *map(str, options)])


GRID = {"product": {"width": [1, 2], "sizes": [[1], [2]]}}


def test_a_dry_run_shows_the_cases_and_how_long_they_take_and_touches_nothing(
    notebook, plan, folder, finish, tmp_path, capsys
):
    shutil.rmtree(folder.path)
    assert command(notebook, tmp_path, GRID, "--dry-run", "--workers", 2) == 0
    said = capsys.readouterr().out
    assert said.count("to do") == 5 and "4 cases: 0 done, 4 to do." in said
    assert "width=2, sizes=[1]" in said and "No run has finished yet" in said
    assert not folder.path.exists()
    folder.prepare()
    finish(plan.runs[1], [], seconds=120)
    assert "About 4 minutes with 2 workers" in preview(plan, folder, 2)
    assert "About 6 minutes with 1 workers" in preview(plan, folder, 1)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("grid", "options", "complaint"),
    [
        ({"product": {"widht": [1]}}, (), "did you mean 'width'?"),
        (GRID, ("--workers", 0), "workers must be positive"),
        (GRID, ("--memory", "plenty"), "memory is a number of bytes or a text such as '4GiB'"),
        (GRID, ("--device", "cuda"), "has no parameter 'device'"),
        (GRID, ("--device", "auto", "--scheduler", "x"), "say device cpu or cuda"),
    ],
)
def test_bad_input_is_one_line_and_status_2_before_anything_is_written(
    grid, options, complaint, notebook, tmp_path, capsys
):
    assert command(notebook, tmp_path, grid, *options) == 2
    said = capsys.readouterr().err
    assert complaint in said and said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_runs_of_an_older_version_are_counted_and_kept_apart(notebook, plan, folder, finish, tmp_path, capsys):
    older = [replace(run, name=f"{number:020x}") for number, run in enumerate(plan.runs[:3])]
    for run in older:
        finish(run, [{"value": -1.0}], digest="of before")
    for number, run in enumerate(plan.runs):
        finish(run, [{"value": float(number)}], digest=plan.digest)
    assert command(notebook, tmp_path, GRID) == 0
    said = capsys.readouterr().out
    assert "4 cases: 4 done before" in said and "another version of the notebook, gnlib or the data: 3; they" in said
    table = pandas.read_parquet(folder.path / "table.parquet")
    assert list(table.value) == [0, 1, 2, 3] and list(table.run_name) == [run.name for run in plan.runs]
    assert {path.name for path in folder.runs.iterdir()} == {run.name for run in (*older, *plan.runs)}

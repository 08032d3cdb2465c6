"""Sweeps without running any: grids, names of runs, rows, tables, figures, and what wrong input is told."""

import ast
import csv
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import dask
import nbformat
import numpy as np
import pandas
import papermill
import pytest
import torch
import yaml
from distributed import Client, Event, LocalCluster
from hypothesis import given
from hypothesis import strategies as st

import gnlib.sweep
from gnlib.sweep import dispatch
from gnlib.sweep.__main__ import main
from gnlib.sweep.execute import Outcome, Settings, execute, gpu_of_worker
from gnlib.sweep.folder import Folder
from gnlib.sweep.grid import read_grid
from gnlib.sweep.identity import Identity, library_digest, rooms_imported, rooms_of
from gnlib.sweep.notebook import read_notebook
from gnlib.sweep.plan import make_plan, preview
from gnlib.sweep.report import report
from gnlib.sweep.table import merge, save
from tests.sweep.faults.helpers import wait_until

ROOT = Path(__file__).parents[2]
bad_input = pytest.mark.bad_input

CELL = """\
seed: int = 0  # annotated
width = 3
scale = 1.0
name = "a"
whiten = True
sizes = [1, 2]
rates = [0.5, 1]
shape = None
last = max(sizes)
"""


def write_notebook(path, cell=CELL, tags=("parameters",), code="print(seed)", prose="prose", outputs=()):
    v4 = nbformat.v4
    cells = [
        v4.new_markdown_cell(prose),
        v4.new_code_cell(cell, metadata={"tags": list(tags)}),
        v4.new_code_cell(code, outputs=list(outputs)),
    ]
    nbformat.write(v4.new_notebook(cells=cells), path)
    return path


@pytest.fixture
def notebook(tmp_path):
    return write_notebook(tmp_path / "tiny.ipynb")


def cases(grid):
    return [case.parameters for case in read_grid(grid).cases]


# Grids


def test_a_product_has_every_combination_the_last_parameter_fastest():
    grid = {"parameters": {"name": "b"}, "product": {"width": [1, 2], "seed": {"seeds": 2}}}
    assert cases(grid) == [{"name": "b", "width": w, "seed": s} for w in (1, 2) for s in (0, 1)]


def test_a_zip_goes_side_by_side_and_named_cases_combine_with_it():
    grid = {"cases": {"x": {"name": "x"}, "y": {"name": "y"}}, "zip": {"width": [1, 2], "seed": [5, 6]}}
    assert cases(grid) == [{"name": n, "width": w, "seed": w + 4} for n in "xy" for w in (1, 2)]
    assert [case.name for case in read_grid(grid).cases] == ["x", "x", "y", "y"]


@given(st.integers(-50, 50), st.integers(0, 50), st.integers(1, 20))
def test_a_range_holds_both_its_ends_if_a_whole_number_of_steps_apart(start, steps, step):
    (values,) = {
        tuple(
            case["seed"]
            for case in cases({"product": {"seed": {"from": start, "to": start + steps * step, "step": step}}})
        )
    }
    assert values[0] == start and values[-1] == start + steps * step
    assert len(values) == steps + 1


def test_grids_follow_one_another_and_share_parameters():
    grid = {
        "parameters": {"name": "b", "width": 1},
        "grids": [{"product": {"seed": [1, 2]}}, {"parameters": {"width": 9}}],
    }
    assert cases(grid) == [
        {"name": "b", "width": 1, "seed": 1},
        {"name": "b", "width": 1, "seed": 2},
        {"name": "b", "width": 9},
    ]


@bad_input
@pytest.mark.parametrize(
    ("grid", "complaint"),
    [
        ({}, "a block is a mapping with some of parameters"),
        ([], "a mapping with some of"),
        ({"grids": []}, "the grid has no case"),
        ({"product": {"seed": []}}, "seed takes no value"),
        ({"product": {"seed": {"from": 3, "to": 2}}}, "seed takes no value"),
        ({"cases": {}}, "cases is empty"),
        ({"product": {"seed": 3}}, "seed takes a list of values"),
        ({"product": {"seed": {"seeds": 0}}}, "seed takes a list of values"),
        ({"product": {"seed": {"from": 0, "to": 1, "step": 0}}}, "seed takes a list of values"),
        ({"product": {"seed": {"from": 0, "to": 1.5}}}, "seed takes a list of values"),
        ({"product": ["seed"]}, "product is a mapping"),
        ({"products": {"seed": [1]}}, "'products' is none of"),
        (
            {"zip": {"seed": [1], "width": [1, 2]}},
            "zip needs as many values of each parameter; got {'seed': 1, 'width'",
        ),
        ({"product": {"seed": [1]}, "zip": {"seed": [1]}}, "'seed' is set twice"),
        ({"cases": {"a": {"seed": 1}}, "parameters": {"seed": 1}}, "'seed' is set twice"),
        ({"grids": [{"product": {"seed": [1]}}], "zip": {}}, "beside grids stand parameters and figures only"),
        ({"product": {"seed": [1]}, "figures": [{"name": "f", "x": "seed"}]}, "a figure lacks 'y'"),
        ({"product": {"seed": [1]}, "figures": [{"name": "f", "x": "a", "y": "b", "z": "c"}]}, "a figure has 'z'"),
    ],
)
def test_what_is_no_grid_is_told_why(grid, complaint, tmp_path):
    path = tmp_path / "grid.yml"
    path.write_text(yaml.safe_dump(grid))
    with pytest.raises(ValueError) as error:
        read_grid(path)
    assert str(path) in str(error.value) and complaint in str(error.value)


@bad_input
@pytest.mark.parametrize(
    ("text", "complaint"),
    [("product: {seed: [1", "is not YAML"), ("cases:\n  a: {seed: 1}\n  a: {seed: 2}\n", "'a' stands twice")],
)
def test_a_file_that_is_not_yaml_or_says_a_thing_twice(text, complaint, tmp_path):
    path = tmp_path / "grid.yml"
    path.write_text(text)
    with pytest.raises(ValueError, match=complaint):
        read_grid(path)


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks/sweeps").glob("*.yml")), ids=lambda path: path.stem)
def test_the_grids_of_the_book_fit_their_chapters(path):
    chapter = path.stem.removesuffix("-gpu")
    plan = make_plan(ROOT / "notebooks" / f"{chapter}.ipynb", path)
    assert plan.runs and plan.grid.figures


# Parameters


def test_the_parameters_are_read_without_running_the_notebook(notebook):
    read = read_notebook(notebook)
    assert read.names == ("seed", "width", "scale", "name", "whiten", "sizes", "rates", "shape", "last")
    assert read.defaults["sizes"] == [1, 2] and read.defaults["shape"] is None
    assert "last" not in read.defaults  # an expression


@pytest.mark.parametrize(
    ("cell", "defaults"),
    [
        ("width = 3  # seed = 0 takes a minute", {"width": 3}),
        ('options = {"title": "a=b"}', {"options": {"title": "a=b"}}),
        ("seed = 0; width = 3", {"seed": 0, "width": 3}),
        ('name = "# 1"', {"name": "# 1"}),
        ('name = """a\n  b"""', {"name": "a\n  b"}),
        ("width = 3\nprint(width)", {"width": 3}),
    ],
)
def test_the_cell_is_read_as_python_where_papermill_reads_it_by_lines(cell, defaults, tmp_path):
    path = write_notebook(tmp_path / "tiny.ipynb", cell)
    assert read_notebook(path).defaults == defaults
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata.kernelspec = {"name": "python3", "language": "python", "display_name": "Python 3"}
    nbformat.write(notebook, path)
    theirs = {name: parameter["default"] for name, parameter in papermill.inspect_notebook(path).items()}
    with pytest.raises((SyntaxError, AssertionError)):  # once it gives the same, read parameters by it
        assert {name: ast.literal_eval(default) for name, default in theirs.items()} == defaults


def test_values_take_the_type_of_the_default(notebook):
    (run,) = make_plan(notebook, {"parameters": {"scale": 2, "rates": [1, 2], "shape": [1, "a"], "last": "b"}}).runs
    assert run.complete["scale"] == 2.0 and isinstance(run.complete["scale"], float)
    assert all(isinstance(rate, float) for rate in run.complete["rates"])
    assert run.given == {"scale": 2.0, "rates": [1.0, 2.0], "shape": [1, "a"], "last": "b"}
    assert run.complete["seed"] == 0


@bad_input
@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"widht": 1}, "tiny.ipynb has no parameter 'widht'; did you mean 'width'?"),
        ({"zzz": 1}, "has no parameter 'zzz'; it has seed, width"),
        ({"width": 1.5}, "takes for width a whole number such as 3; the grid gives 1.5, a number."),
        ({"width": True}, "the grid gives True, true or false"),
        ({"scale": "1e-3"}, "write 1.0e-3"),
        ({"scale": None}, "the grid gives None, nothing"),
        ({"whiten": 1}, "takes for whiten true or false such as True; the grid gives 1"),
        ({"name": 1}, "takes for name text such as 'a'"),
        ({"sizes": 1}, "give a list of lists"),
        ({"sizes": [1, "a"]}, "takes for sizes a list such as [1, 2]; the grid gives [1, 'a']"),
        ({"shape": yaml.safe_load("2026-01-01")}, "takes for shape plain numbers and text"),
    ],
)
def test_a_case_that_does_not_fit_the_notebook_is_told_why(parameters, complaint, notebook):
    with pytest.raises(ValueError) as error:
        make_plan(notebook, {"parameters": parameters})
    assert complaint in str(error.value)


@bad_input
def test_two_equal_cases_are_one_too_many(notebook):
    with pytest.raises(ValueError, match="Cases 1 and 3 of the grid are the same"):
        make_plan(notebook, {"grids": [{"product": {"seed": [0, 1]}}, {"parameters": {"width": 3}}]})  # the defaults


@bad_input
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"tags": ()}, "tiny.ipynb has no cell tagged 'parameters'"),
        ({"cell": "seed = ", "tags": ("parameters",)}, "The parameters cell of tiny.ipynb is not Python"),
    ],
)
def test_a_notebook_that_cannot_be_swept(options, complaint, tmp_path):
    with pytest.raises(ValueError, match=complaint):
        read_notebook(write_notebook(tmp_path / "tiny.ipynb", **options))


@bad_input
def test_a_notebook_that_is_none(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no notebook at"):
        read_notebook(tmp_path / "missing.ipynb")
    (tmp_path / "text.ipynb").write_text("text")
    with pytest.raises(ValueError, match="is not a notebook"):
        read_notebook(tmp_path / "text.ipynb")
    with pytest.raises(ValueError, match="pass the one beside it"):
        read_notebook(ROOT / "notebooks/deep-linear.md")


# Names of runs


def test_only_what_decides_the_results_decides_the_name(tmp_path, monkeypatch):
    def name(**options):
        read = read_notebook(write_notebook(tmp_path / "tiny.ipynb", **options))
        return Identity(read)({**read.defaults, **parameters})

    parameters = {"seed": 1}
    first = name()
    assert name() == first
    assert name(prose="other prose") == first
    assert name(outputs=[nbformat.v4.new_output("stream", text="1")]) == first
    others = [name(code="print(seed + 1)"), name(cell=CELL.replace("width = 3", "width = 4"))]
    parameters = {"seed": 2}
    others.append(name())
    parameters = {"seed": 1}
    monkeypatch.setattr("gnlib.sweep.identity.data_digests", lambda: {"mnist": ["another"]})
    others.append(name())
    assert len({first, *others}) == 5


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A copy of gnlib, to be changed."""
    copy = shutil.copytree(ROOT / "gnlib", tmp_path / "gnlib", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr("gnlib.sweep.identity.LIBRARY", copy)
    (tmp_path / "notebooks").mkdir()
    return copy


PRUNING = "from gnlib.chapters.pruning.vgg import VGG"
COLAB = 'import sys\n\nif "google.colab" in sys.modules:\n    %pip install --quiet {source}'


@pytest.mark.parametrize(
    ("code", "changed", "stale"),
    [
        (PRUNING, "chapters/convolution/bounds.py", False),
        (PRUNING, "chapters/figures.py", False),
        (PRUNING, "sweep/grid.py", False),  # how a run comes about
        (PRUNING, "chapters/pruning/masks.py", True),
        (PRUNING, "chapters/shared/skips.py", True),
        (PRUNING, "checks.py", True),
        ("from gnlib.chapters import pruning", "chapters/convolution/bounds.py", False),
        ("from gnlib.chapters import pruning", "chapters/pruning/masks.py", True),
        ("import gnlib.chapters.pruning.vgg as vgg", "chapters/convolution/bounds.py", False),
        ("def late():\n    import gnlib.chapters.pruning.vgg", "chapters/pruning/masks.py", True),
        ("from gnlib.chapters import figures, results", "chapters/pruning/masks.py", False),
        (COLAB, "chapters/pruning/masks.py", False),
        # Where the text does not show which rooms are used, all of them count.
        ("import importlib", "chapters/pruning/masks.py", True),
        ('__import__("gnlib.chapters.pruning.vgg")', "chapters/pruning/masks.py", True),
        ("from gnlib import chapters", "chapters/pruning/masks.py", True),
        ("from gnlib.chapters import *", "chapters/pruning/masks.py", True),
        ("from gnlib.chapters.unknown import f", "chapters/pruning/masks.py", True),
        ("%run helper.py", "chapters/pruning/masks.py", True),
    ],
)
def test_a_change_in_gnlib_makes_those_runs_old_that_may_use_it(code, changed, stale, library):
    read = read_notebook(write_notebook(library.parent / "notebooks" / "chapter.ipynb", code=code))
    first = Identity(read)({})
    (library / changed).write_text("")
    assert (Identity(read)({}) != first) == stale


def test_for_a_notebook_that_is_no_chapter_of_the_book_all_rooms_count(library):
    read = read_notebook(write_notebook(library.parent / "own.ipynb"))  # a module beside it may import any
    first = Identity(read)({})
    (library / "chapters/figures.py").write_text("")
    assert Identity(read)({}) == first
    (library / "chapters/pruning/masks.py").write_text("")
    assert Identity(read)({}) != first


ROOMS = sorted(path.name for path in (ROOT / "gnlib/chapters").iterdir() if (path / "__init__.py").exists())


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_uses_no_other_so_that_a_run_is_known_by_those_that_its_notebook_names(room):
    sources = [path.read_text() for path in (ROOT / "gnlib/chapters" / room).rglob("*.py")]
    assert rooms_imported(sources) in ((), (room,))


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_text_of_each_chapter_shows_which_rooms_it_uses(path):
    assert rooms_of(read_notebook(path)) in ((), (path.stem.replace("-", "_"),))


def test_a_worker_with_another_library_refuses(tmp_path):
    settings = Settings(tmp_path, tmp_path, tmp_path, library_digest(None)[::-1], None, 1, None, 1, (), {})
    assert "gnlib has changed since the sweep began" in execute(settings, "name", {}).error
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_a_lost_worker_had_finished_is_not_run_again(plan, folder):
    finish(folder, plan.runs[0], [])
    settings = Settings(folder.path, folder.path, folder.path, library_digest(None), None, 1, None, 1, (), {})
    assert execute(settings, plan.runs[0].name, {}) == Outcome(plan.runs[0].name, None, 2.0, 2**20)


def test_each_worker_has_a_gpu_of_its_own():
    assert [gpu_of_worker(worker, ("2", "5")) for worker in range(4)] == ["2", "5", "2", "5"]


# Rows


def test_outside_a_sweep_record_only_returns(monkeypatch):
    monkeypatch.delenv("GNLIB_SWEEP_ROWS", raising=False)
    assert gnlib.sweep.record([]) is None


def test_rows_of_all_calls_are_kept_with_scalars_as_plain_values(tmp_path, monkeypatch):
    path = tmp_path / "rows.json"
    monkeypatch.setenv("GNLIB_SWEEP_ROWS", str(path))
    gnlib.sweep.record([{"a": np.float64(0.1), "b": torch.tensor(3)}])
    gnlib.sweep.record({"c": value} for value in (None, True, "text", float("inf")))
    assert json.loads(path.read_text()) == {
        "device": "cpu",
        "rows": [{"a": 0.1, "b": 3}, {"c": None}, {"c": True}, {"c": "text"}, {"c": float("inf")}],
    }


@bad_input
@pytest.mark.parametrize(
    ("row", "error", "complaint"),
    [
        ([1], TypeError, "record takes a list of mappings"),
        ({1: 1}, TypeError, "is not named by text"),
        ({"run_seconds": 1}, ValueError, "the sweep's own columns do"),
        ({"a": [1, 2]}, TypeError, "holds a list; a number"),
        ({"a": np.arange(2)}, TypeError, "Write one row for each element"),
    ],
)
def test_a_row_that_cannot_be_kept_is_told_why(row, error, complaint, tmp_path, monkeypatch):
    monkeypatch.setenv("GNLIB_SWEEP_ROWS", str(tmp_path / "rows.json"))
    with pytest.raises(error, match=complaint):
        gnlib.sweep.record([row])
    assert list(tmp_path.iterdir()) == []


def test_a_chapter_can_record_where_nothing_is_installed_for_sweeps():
    code = """
import sys, gnlib
before = {name.partition(".")[0] for name in sys.modules}
import gnlib.sweep
after = {name.partition(".")[0] for name in sys.modules}
print(*(after - before - sys.stdlib_module_names))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


# Tables and figures


def finish(folder, run, rows, seconds=2.0, identity=None):
    path = folder.runs / run.name
    path.mkdir()
    versions = {"python": "3", "gnlib": "0"}
    report = {
        "versions": versions,
        "identity": identity,
        "revision": "abc",
        "seconds": seconds,
        "memory": 2**20,
        "finished": "",
        "threads": 1,
    }
    (path / "run.json").write_text(json.dumps(report))
    if rows is not None:
        (path / "rows.json").write_text(json.dumps({"device": "cpu", "rows": rows}))


@pytest.fixture
def plan(notebook):
    figures = [{"name": "f", "x": "step", "y": "value", "lines": "width", "label": "m = {}", "dashed": "bound"}]
    grid = {"product": {"width": [1, 2], "sizes": [[1], [2]]}, "figures": figures}
    return make_plan(notebook, grid)


@pytest.fixture
def folder(tmp_path):
    folder = Folder(tmp_path / "out")
    folder.prepare()
    return folder


def test_the_table_has_the_rows_of_finished_runs_in_the_order_of_the_grid(plan, folder):
    for number in (3, 1, 0):  # the order in which they finish is another
        finish(folder, plan.runs[number], [{"step": step, "value": number / 7} for step in range(2)])
    table = merge(folder, plan.runs)
    assert list(table.columns[:4]) == ["width", "sizes", "step", "value"]
    assert all(column.startswith("run_") for column in table.columns[4:])
    assert list(table.sizes) == ["[1]", "[1]", "[2]", "[2]", "[2]", "[2]"]
    save(table, folder.path)
    read = pandas.read_parquet(folder.path / "table.parquet")
    assert list(read.value) == [0, 0, 1 / 7, 1 / 7, 3 / 7, 3 / 7]  # to the last digit
    assert list(pandas.read_csv(folder.path / "table.csv").value) == list(read.value)
    assert set(read.run_memory_mib) == {1.0} and set(read.run_seconds) == {2.0}


def test_rows_may_differ_in_columns_and_types_and_runs_may_have_none(plan, folder):
    finish(folder, plan.runs[0], [{"a": 1, "width": 99}])
    finish(folder, plan.runs[1], [{"a": "text", "b": None}])
    finish(folder, plan.runs[2], None)
    save(merge(folder, plan.runs), folder.path)
    table = pandas.read_parquet(folder.path / "table.parquet")
    assert list(table.a[:2]) == ["1", "text"] and table.a.isna()[2]
    assert list(table.width) == [99, 1, 2]  # a row knows better than its run


def test_whole_numbers_stay_whole_where_some_are_missing(plan, folder):
    finish(folder, plan.runs[0], [{"epoch": 2, "kappa": 2.0, "big": 2**60 + 1}, {"epoch": None, "kappa": None}])
    finish(folder, plan.runs[1], [{"kappa": 3.0}])
    save(merge(folder, plan.runs), folder.path)
    with (folder.path / "table.csv").open() as file:
        cells = [(row["epoch"], row["kappa"], row["big"]) for row in csv.DictReader(file)]
    assert cells == [("2", "2.0", str(2**60 + 1)), ("", "", ""), ("", "3.0", "")]
    table = pandas.read_parquet(folder.path / "table.parquet")
    assert table.epoch[0] == 2 and table.epoch.isna().tolist() == [False, True, True]


def test_runs_wait_on_the_scheduler_not_behind_a_long_one(plan, folder, monkeypatch):
    """Dask deals single tasks out at once; those of a group it keeps until a worker is free."""
    monkeypatch.setattr(dispatch, "execute", lambda settings, name, given: Event("gate").wait() and Outcome(name, None))
    runs = [replace(run, name=f"{run.name}{letter}") for run in plan.runs for letter in "ab"]
    local = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": "127.0.0.1:0"}
    with (
        dask.config.set({"distributed.scheduler.worker-saturation": 1.0}),
        LocalCluster(**local, scheduler_kwargs={"dashboard": False}) as cluster,
        Client(cluster) as client,
        ThreadPoolExecutor(1) as thread,
    ):
        gate = Event("gate", client=client)
        try:
            settings = Settings(folder.path, folder.path, folder.path, library_digest(None), None, 1, None, 1, (), {})
            ended = thread.submit(list, dispatch.outcomes(client, settings, runs))
            wait_until(lambda: len(cluster.scheduler.tasks) == len(runs) == 8, "all runs are known")
            dealt = [len(worker.processing) for worker in cluster.scheduler.workers.values()]
            waiting = len(cluster.scheduler.queued)
        finally:
            gate.set()
        assert {outcome.name for outcome in ended.result()} == {run.name for run in runs}
    assert (waiting, dealt) == (6, [1, 1])


def test_before_any_run_has_finished_the_table_is_empty(plan, folder):
    save(merge(folder, plan.runs), folder.path)
    assert list(pandas.read_parquet(folder.path / "table.parquet").columns) == ["width", "sizes"]


def test_a_run_of_which_a_crash_left_half_a_report_is_run_again(plan, folder):
    finish(folder, plan.runs[0], [])
    (folder.runs / plan.runs[0].name / "run.json").write_text('{"versions"')
    assert folder.finished(plan.runs[0].name) is None
    assert not (folder.runs / plan.runs[0].name).exists()


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


# The command line


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
        ({"product": {"width": []}}, (), "the grid has no case"),
        ({"product": {"width": [1]}}, ("--workers", 0), "workers must be positive"),
        ({"product": {"width": [1]}}, ("--timeout", -1), "timeout must be positive"),
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


@bad_input
def test_a_missing_grid_and_an_unwritable_folder(notebook, tmp_path, capsys):
    options = ["--grid", str(tmp_path / "no.yml"), "--out", str(tmp_path / "out")]
    assert main([str(notebook), *options]) == 2
    assert "There is no grid file at" in capsys.readouterr().err
    (tmp_path / "file").touch()
    grid = tmp_path / "grid.yml"
    grid.write_text("product: {width: [1]}")
    assert main([str(notebook), "--grid", str(grid), "--out", str(tmp_path / "file" / "out")]) == 2
    assert "Cannot write to the folder" in capsys.readouterr().err


def test_the_device_is_handed_on_where_there_is_such_a_parameter(tmp_path):
    notebook = write_notebook(tmp_path / "tiny.ipynb", cell='seed = 0\ndevice = "cpu"')
    grid = {"product": {"seed": [1]}}
    assert make_plan(notebook, grid, "cuda").runs[0].given == {"seed": 1, "device": "cuda"}
    assert make_plan(notebook, grid).runs[0].given == {"seed": 1}
    with pytest.raises(ValueError, match="sets the parameter 'device' itself"):
        make_plan(notebook, {"product": {"device": ["cpu"]}}, "cuda")


def test_runs_of_an_older_version_are_counted_and_kept_apart(notebook, plan, folder, tmp_path, capsys):
    grid = {"product": {"width": [1, 2], "sizes": [[1], [2]]}, "figures": [{"name": "f", "x": "width", "y": "value"}]}
    older = [replace(run, name=f"{number:020x}") for number, run in enumerate(plan.runs[:3])]
    for run in older:
        finish(folder, run, [{"value": -1.0}], identity=plan.identity.common | {"library": "of before"})
    save(merge(folder, older), folder.path)
    said = (
        "another version of the notebook, gnlib or the data: 3; they stay as they are, and the table leaves them out."
    )
    assert command(notebook, tmp_path, grid, "--dry-run") == 0
    shown = capsys.readouterr().out
    assert shown.count(said) == 1 and "4 cases: 0 done, 4 to do." in shown

    for number, run in enumerate(plan.runs):
        finish(folder, run, [{"value": float(number)}], identity=plan.identity.common)
    assert command(notebook, tmp_path, grid) == 0
    shown = capsys.readouterr().out
    assert "4 cases: 4 done before" in shown and shown.count(said) == 1
    table = pandas.read_parquet(folder.path / "table.parquet")
    assert list(table.value) == [0, 1, 2, 3] and list(table.run_name) == [run.name for run in plan.runs]
    assert main(["report", str(folder.path)]) == 0
    assert capsys.readouterr().out.count(said) == 1
    assert {path.name for path in folder.runs.iterdir()} == {run.name for run in (*older, *plan.runs)}

    smaller = {**grid, "product": {"width": [1, 2], "sizes": [[1]]}}  # of runs of this version it says nothing
    assert command(notebook, tmp_path, smaller) == 0
    shown = capsys.readouterr().out
    assert "2 cases: 2 done before" in shown and shown.count(said) == 1
    for run in older:
        shutil.rmtree(folder.runs / run.name)
    assert command(notebook, tmp_path, smaller) == 0 and main(["report", str(folder.path)]) == 0
    assert "another version" not in capsys.readouterr().out


@bad_input
def test_a_folder_belongs_to_one_notebook(notebook, folder, tmp_path, capsys):
    (folder.path / "sweep.json").write_text(json.dumps({"notebook": "other.ipynb", "figures": []}))
    assert command(notebook, tmp_path, {"product": {"width": [1]}}) == 2
    assert "holds the sweep of other.ipynb" in capsys.readouterr().err


# One sweep at a time

HOLD = """
import sys, time
from pathlib import Path
from gnlib.sweep.folder import Folder

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


# What a sweep writes is no source


def test_neither_git_nor_jupytext_takes_results_for_sources(folder, tmp_path):
    from jupytext.config import load_jupytext_config

    shutil.copy(ROOT / "jupytext.toml", tmp_path)  # pairs every notebook below it
    executed = folder.runs / "name" / "notebook.ipynb"
    executed.parent.mkdir()
    write_notebook(executed)
    assert load_jupytext_config(str(executed)).default_formats(str(executed)) == "ipynb"
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    status = ["git", "-C", tmp_path, "status", "--porcelain", "--untracked-files=all"]
    listed = subprocess.run(status, capture_output=True, text=True, check=True).stdout
    assert listed.split() == ["??", "jupytext.toml"]


def test_the_book_is_built_from_its_table_of_contents_only():
    assert yaml.safe_load((ROOT / "_config.yml").read_text())["only_build_toc_files"] is True

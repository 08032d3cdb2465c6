"""The table of the runs that have finished, and the figures that a grid declares of it."""

import json

from gnbook.sweep.report import report
from gnbook.sweep.table import merge, save

from tests.gnbook.sweep.helpers import finish, read_table


def test_the_table_has_the_rows_of_finished_runs_in_the_order_of_the_grid(plan, folder):
    for number in (3, 1, 0):  # the order in which they finish is another
        finish(folder, plan.runs[number], [{"step": step, "value": number / 7} for step in range(2)])
    table = merge(folder, plan.runs)
    assert list(table.columns[:4]) == ["width", "sizes", "step", "value"]
    assert all(column.startswith("run_") for column in table.columns[4:])
    assert list(table.sizes) == ["[1]", "[1]", "[2]", "[2]", "[2]", "[2]"]
    save(table, folder.path)
    import pandas

    read = read_table(folder)
    assert list(read.value) == [0, 0, 1 / 7, 1 / 7, 3 / 7, 3 / 7]  # to the last digit
    assert list(pandas.read_csv(folder.path / "table.csv").value) == list(read.value)
    assert set(read.run_memory_mib) == {1.0} and set(read.run_seconds) == {2.0}


def test_rows_may_differ_in_columns_and_types_and_runs_may_have_none(plan, folder):
    finish(folder, plan.runs[0], [{"a": 1, "width": 99}])
    finish(folder, plan.runs[1], [{"a": "text", "b": None}])
    finish(folder, plan.runs[2], None)
    save(merge(folder, plan.runs), folder.path)
    table = read_table(folder)
    assert list(table.a[:2]) == ["1", "text"] and table.a.isna()[2]
    assert list(table.width) == [99, 1, 2]  # a row knows better than its run


def test_the_declared_figures_are_drawn(plan, folder):
    for number, run in enumerate(plan.runs):
        finish(folder, run, [{"step": step, "value": number + step, "bound": 9} for step in range(3)] + [{"value": 1}])
    save(merge(folder, plan.runs), folder.path)
    (folder.path / "sweep.json").write_text(json.dumps({"notebook": "", "figures": plan.grid.figures}))
    (path,) = report(folder.path)
    assert path == folder.path / "f.png" and path.read_bytes().startswith(b"\x89PNG")

"""A tiny notebook that no test runs, and runs of it that are said to have finished."""

import json

import nbformat
from gnbook.sweep.execute import Settings
from gnbook.sweep.notebook import read_notebook

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


def settings_for(folder, notebook, **changes):
    """Settings of a sweep that bounds nothing."""
    defaults = {
        "folder": folder,
        "notebook": notebook,
        "directory": notebook.parent,
        "digest": read_notebook(notebook).digest(),
        "timeout": 100,
        "memory": 2**40,
        "threads": 1,
        "gpus": (),
        "provenance": {},
    }
    return Settings(**defaults | changes)


def finish(folder, run, rows, seconds=2.0, digest=None):
    path = folder.runs / run.name
    path.mkdir()
    versions = {"python": "3", "gnlib": "0"}
    report = {
        "versions": versions,
        "digest": digest,
        "revision": "abc",
        "seconds": seconds,
        "memory": 2**20,
        "finished": "",
        "threads": 1,
    }
    (path / "run.json").write_text(json.dumps(report))
    if rows is not None:
        (path / "rows.json").write_text(json.dumps({"device": "cpu", "rows": rows}))


def read_table(folder):
    import pandas

    return pandas.read_parquet(folder.path / "table.parquet")

"""A tiny notebook that no test runs, a sweep of it that is planned, and runs of it that are said to have finished."""

import json

import nbformat
import pytest
from gnbook.sweep.folder import Folder
from gnbook.sweep.plan import make_plan

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


@pytest.fixture
def write_notebook(tmp_path):
    def write(cell=CELL, code="print(seed)", prose="prose", outputs=()):
        v4 = nbformat.v4
        parameters = v4.new_code_cell(cell, metadata={"tags": ["parameters"]})
        cells = [v4.new_markdown_cell(prose), parameters, v4.new_code_cell(code, outputs=list(outputs))]
        nbformat.write(v4.new_notebook(cells=cells), tmp_path / "tiny.ipynb")
        return tmp_path / "tiny.ipynb"

    return write


@pytest.fixture
def notebook(write_notebook):
    return write_notebook()


@pytest.fixture
def plan(notebook):
    figures = [{"name": "f", "x": "step", "y": "value", "lines": "width", "label": "m = {}", "dashed": "bound"}]
    return make_plan(notebook, {"product": {"width": [1, 2], "sizes": [[1], [2]]}, "figures": figures})


@pytest.fixture
def folder(tmp_path):
    folder = Folder(tmp_path / "out")
    folder.prepare()
    return folder


@pytest.fixture
def finish(folder):
    def finish(run, rows, seconds=2.0, digest=None):
        path = folder.runs / run.name
        path.mkdir()
        report = {"versions": {"gnlib": "0"}, "digest": digest, "revision": "abc", "seconds": seconds}
        report |= {"memory": 2**20, "finished": "", "threads": 1}
        (path / "run.json").write_text(json.dumps(report))
        if rows is not None:
            (path / "rows.json").write_text(json.dumps({"device": "cpu", "rows": rows}))

    return finish

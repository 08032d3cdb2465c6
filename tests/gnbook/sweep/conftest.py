"""The tiny notebook, a sweep of it that is planned, and a folder for its results."""

import pytest
from gnbook.sweep.folder import Folder
from gnbook.sweep.plan import make_plan

from tests.gnbook.sweep.helpers import write_notebook


@pytest.fixture
def notebook(tmp_path):
    return write_notebook(tmp_path / "tiny.ipynb")


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

"""The runs that a grid and a notebook make, and cases that do not fit."""

import re
from pathlib import Path

import nbformat
import pytest
import yaml
from gnbook.sweep.notebook import read_notebook
from gnbook.sweep.plan import make_plan

from tests.gnbook.sweep.helpers import CELL, write_notebook

ROOT = Path(__file__).parents[3]
bad_input = pytest.mark.bad_input


def test_the_parameters_are_read_without_running_the_notebook(notebook):
    read = read_notebook(notebook)
    assert read.names == ("seed", "width", "scale", "name", "whiten", "sizes", "rates", "shape", "last")
    assert read.defaults["sizes"] == [1, 2] and read.defaults["shape"] is None
    assert "last" not in read.defaults  # an expression


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks/sweeps").glob("*.yml")), ids=lambda path: path.stem)
def test_the_grids_of_the_book_fit_their_chapters(path):
    named = re.search(
        r"gnbook\.sweep notebooks/laboratory/(\S+)\.ipynb", path.read_text()
    )  # in a comment, where it is not its own
    stem = named[1] if named else path.stem
    chapters = [
        page for page in (ROOT / "notebooks/laboratory").glob("*.ipynb") if f"{stem}-".startswith(f"{page.stem}-")
    ]
    plan = make_plan(max(chapters, key=lambda page: len(page.stem)), path)
    assert plan.runs and plan.grid.figures


def test_only_what_decides_the_results_decides_the_names(tmp_path):
    def name(parameters=None, **options):
        notebook = write_notebook(tmp_path / "tiny.ipynb", **options)
        return make_plan(notebook, {"parameters": parameters or {"seed": 1}}).runs[0].name

    first = name()
    assert name() == first
    assert name(prose="other prose") == first
    assert name(outputs=[nbformat.v4.new_output("stream", text="1")]) == first
    others = [name({"seed": 2}), name(code="print(seed + 1)"), name(cell=CELL.replace("width = 3", "width = 4"))]
    others += [name(code="import beside") for text in ("1", "2") if (tmp_path / "beside.py").write_text(text)]
    assert len({first, *others}) == 6


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
        ({"scale": "1e-3"}, "write 1.0e-3"),
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

"""Grids and the runs that they make of a notebook, and what is told of grids and cases that do not fit."""

import re

import nbformat
import pytest
import yaml
from gnbook.checkout import ROOT
from gnbook.sweep.grid import read_grid
from gnbook.sweep.plan import make_plan

from tests.gnbook.sweep.conftest import CELL

W, S = {"width": 1}, {"seed": [1]}


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        (
            {
                "parameters": {"name": "b"},
                "product": {"width": [1, 2], "seed": {"seeds": 2}},
            },  # the last is the fastest
            [{"name": "b", "width": w, "seed": s} for w in (1, 2) for s in (0, 1)],
        ),
        (
            {"cases": {"x": {"name": "x"}, "y": {"name": "y"}}, "zip": {"width": [1, 2], "seed": [5, 6]}},
            [{"name": n, "width": w, "seed": w + 4} for n in "xy" for w in (1, 2)],
        ),
        ({"product": {"seed": {"from": -2, "to": 10, "step": 4}}}, [{"seed": seed} for seed in (-2, 2, 6, 10)]),
        ({"product": {"seed": {"from": -2, "to": 11, "step": 4}}}, [{"seed": seed} for seed in (-2, 2, 6, 10)]),
        (
            {"parameters": W | {"name": "b"}, "grids": [{"product": {"seed": [1, 2]}}, {"parameters": {"width": 9}}]},
            [{"name": "b", "width": 1, "seed": 1}, {"name": "b", "width": 1, "seed": 2}, {"name": "b", "width": 9}],
        ),
    ],
)
def test_the_cases_of_a_grid_in_their_order(grid, expected):
    cases = read_grid(grid).cases
    assert [case.parameters for case in cases] == expected
    assert [case.name for case in cases] == [case["name"] if "cases" in grid else None for case in expected]


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("grid", "complaint"),
    [
        ({}, "a block is a mapping with some of parameters"),
        ({"grids": []}, "the grid has no case"),
        ({"product": {"seed": []}}, "seed takes a list of values"),
        ({"product": {"seed": {"from": 0, "to": 1, "step": 0}}}, "seed takes a list of values"),
        ({"product": {"seed": {"from": 0, "to": 1.5}}}, "seed takes a list of values"),
        ({"product": ["seed"]}, "product is a mapping"),
        ({"products": S}, "a block is a mapping with some of parameters"),
        ({"zip": {"seed": [1], "width": [1, 2]}}, "as many values of each parameter; got {'seed': 1, 'width'"),
        ({"product": S, "zip": S}, "'seed' is set twice"),
        ({"grids": [{"product": S}], "zip": {}}, "beside grids stand parameters and figures only"),
        ({"product": S, "figures": [{"name": "f", "x": "seed"}]}, "a figure lacks 'y'"),
    ],
)
def test_what_is_no_grid_is_told_why(grid, complaint, tmp_path):
    path = tmp_path / "grid.yml"
    path.write_text(yaml.safe_dump(grid))
    with pytest.raises(ValueError) as error:
        read_grid(path)
    assert str(path) in str(error.value) and complaint in str(error.value)


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks/sweeps").glob("*.yml")), ids=lambda path: path.stem)
def test_the_grids_of_the_book_fit_their_chapters(path):
    named = re.search(r"gnbook\.sweep notebooks/laboratory/(\S+)\.ipynb", path.read_text())  # where it is not its own
    stem = named[1] if named else path.stem
    pages = [page for page in ROOT.glob("notebooks/laboratory/*.ipynb") if f"{stem}-".startswith(f"{page.stem}-")]
    plan = make_plan(max(pages, key=lambda page: len(page.stem)), path)
    assert plan.runs and plan.grid.figures


def test_only_what_decides_the_results_decides_the_names(tmp_path, write_notebook):
    def name(seed=1, **options):
        return make_plan(write_notebook(**options), {"parameters": {"seed": seed}}).runs[0].name

    first = name()
    assert first == name(prose="other prose") == name(outputs=[nbformat.v4.new_output("stream", text="1")])
    others = [name(2), name(code="print(seed + 1)"), name(cell=CELL.replace("width = 3", "width = 4"))]
    others += [name(code="import beside") for text in ("1", "2") if (tmp_path / "beside.py").write_text(text)]
    assert len({first, *others}) == 6


def test_values_take_the_type_of_the_default(notebook):
    (run,) = make_plan(notebook, {"parameters": {"scale": 2, "rates": [1, 2], "shape": [1, "a"], "last": "b"}}).runs
    assert run.given == {"scale": 2.0, "rates": [1.0, 2.0], "shape": [1, "a"], "last": "b"}
    assert all(isinstance(value, float) for value in (run.complete["scale"], *run.complete["rates"]))
    assert run.complete["seed"] == 0 and run.complete["name"] == "a"


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"widht": 1}, "tiny.ipynb has no parameter 'widht'; did you mean 'width'?"),
        ({"width": 1.5}, "takes for width a value such as 3; the grid gives 1.5."),
        ({"scale": "1e-3"}, "write 1.0e-3"),
        ({"whiten": 1}, "takes for whiten a value such as True; the grid gives 1"),
        ({"sizes": 1}, "give a list of lists"),
        ({"sizes": [1, "a"]}, "takes for sizes a value such as [1, 2]; the grid gives [1, 'a']"),
        ({"shape": yaml.safe_load("2026-01-01")}, "takes for shape plain numbers and text"),
    ],
)
def test_a_case_that_does_not_fit_the_notebook_is_told_why(parameters, complaint, notebook):
    with pytest.raises(ValueError) as error:
        make_plan(notebook, {"parameters": parameters})
    assert complaint in str(error.value)

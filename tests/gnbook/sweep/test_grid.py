"""Grids: which cases they stand for, and what is told of one that is none."""

import pytest
import yaml
from gnbook.sweep.grid import read_grid

bad_input = pytest.mark.bad_input


def cases(grid):
    return [case.parameters for case in read_grid(grid).cases]


def test_a_product_has_every_combination_the_last_parameter_fastest():
    grid = {"parameters": {"name": "b"}, "product": {"width": [1, 2], "seed": {"seeds": 2}}}
    assert cases(grid) == [{"name": "b", "width": w, "seed": s} for w in (1, 2) for s in (0, 1)]


def test_a_zip_goes_side_by_side_and_named_cases_combine_with_it():
    grid = {"cases": {"x": {"name": "x"}, "y": {"name": "y"}}, "zip": {"width": [1, 2], "seed": [5, 6]}}
    assert cases(grid) == [{"name": n, "width": w, "seed": w + 4} for n in "xy" for w in (1, 2)]
    assert [case.name for case in read_grid(grid).cases] == ["x", "x", "y", "y"]


def test_a_range_holds_both_its_ends_if_a_whole_number_of_steps_apart():
    for last in (10, 11):
        grid = {"product": {"seed": {"from": -2, "to": last, "step": 4}}}
        assert [case["seed"] for case in cases(grid)] == [-2, 2, 6, 10]


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
        ({"grids": []}, "the grid has no case"),
        ({"product": {"seed": []}}, "seed takes no value"),
        ({"cases": {}}, "cases is empty"),
        ({"product": {"seed": 3}}, "seed takes a list of values"),
        ({"product": {"seed": {"from": 0, "to": 1, "step": 0}}}, "seed takes a list of values"),
        ({"product": {"seed": {"from": 0, "to": 1.5}}}, "seed takes a list of values"),
        ({"product": ["seed"]}, "product is a mapping"),
        ({"products": {"seed": [1]}}, "'products' is none of"),
        (
            {"zip": {"seed": [1], "width": [1, 2]}},
            "zip needs as many values of each parameter; got {'seed': 1, 'width'",
        ),
        ({"product": {"seed": [1]}, "zip": {"seed": [1]}}, "'seed' is set twice"),
        ({"grids": [{"product": {"seed": [1]}}], "zip": {}}, "beside grids stand parameters and figures only"),
        ({"product": {"seed": [1]}, "figures": [{"name": "f", "x": "seed"}]}, "a figure lacks 'y'"),
    ],
)
def test_what_is_no_grid_is_told_why(grid, complaint, tmp_path):
    path = tmp_path / "grid.yml"
    path.write_text(yaml.safe_dump(grid))
    with pytest.raises(ValueError) as error:
        read_grid(path)
    assert str(path) in str(error.value) and complaint in str(error.value)

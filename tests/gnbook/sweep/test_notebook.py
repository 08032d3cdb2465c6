"""Reading a notebook: its parameters, without running it, and what cannot be swept."""

from pathlib import Path

import pytest
from gnbook.sweep.notebook import read_notebook

from tests.gnbook.sweep.helpers import write_notebook

ROOT = Path(__file__).parents[3]
bad_input = pytest.mark.bad_input


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
        ('name = "# 1"', {"name": "# 1"}),
        ("width = 3\nprint(width)", {"width": 3}),
    ],
)
def test_the_cell_is_read_as_python_where_papermill_reads_it_by_lines(cell, defaults, tmp_path):
    assert read_notebook(write_notebook(tmp_path / "tiny.ipynb", cell)).defaults == defaults


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
        read_notebook(ROOT / "notebooks/laboratory/deep-linear.md")

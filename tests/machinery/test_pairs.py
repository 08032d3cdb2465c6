"""A chapter is a pair: a .md, its source, and an .ipynb, the same cells and outputs."""

import json
import re
import tomllib
from pathlib import Path

import jupytext
import pytest
from gnbook.checkout import chapters

ROOT = Path(__file__).parents[2]
SOURCES = [*chapters().values()]
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
INSTALL = """\
import sys

if "google.colab" in sys.modules:  # elsewhere this cell does nothing
    source = "{source}"  # where pip finds gnlib; `make address URL=...` writes it
    assert source, "This book has no public address yet: set source to where you keep gnlib, \
for example 'git+https://...'."
    %pip install --quiet {{source}}""".format(source=f"git+{URLS['Repository']}" if "Repository" in URLS else "")
PAGE = 92  # characters of a printed line that fit the page
# What differs from one machine or one run to the next: paths, and addresses in memory.
PASSING = re.compile(r"(?<![\w.:/])/(home|root|tmp|usr|opt|work|mnt|Users|content)/|\b0x[0-9a-f]{8,}")


@pytest.fixture(params=SOURCES, ids=lambda path: path.stem, scope="module")
def source(request):
    return request.param


@pytest.fixture(scope="module")
def executed(source):
    return jupytext.read(source.with_suffix(".ipynb"))


@pytest.fixture(scope="module")
def code_cells(executed):
    return [cell for cell in executed.cells if cell.cell_type == "code"]


def tags(cell):
    return sorted(cell.metadata.get("tags", []))


def test_each_chapter_is_a_pair():
    assert [*chapters()] and [*chapters()] == [*chapters(".ipynb")]


def test_both_hold_the_same_cells(source, executed):
    cells = [
        [(cell.cell_type, cell.source, tags(cell)) for cell in notebook.cells]
        for notebook in (jupytext.read(source), executed)
    ]
    assert cells[0] == cells[1], "Run `make notebooks`."


def test_it_begins_with_the_installation_and_the_parameters(code_cells):
    assert code_cells[0].source == INSTALL
    assert tags(code_cells[0]) == ["install"]
    assert ["parameters" in tags(cell) for cell in code_cells].index(True) == 1
    assert sum("parameters" in tags(cell) for cell in code_cells) == 1


def test_it_was_executed_in_order_and_shows_something(code_cells):
    counts = [cell.execution_count for cell in code_cells]
    assert counts == list(range(1, len(counts) + 1)), "Run `make notebooks`."
    assert any(cell.outputs for cell in code_cells)


def test_each_checked_cell_has_outputs_to_be_checked(code_cells):
    checked = [cell for cell in code_cells if "nbval-check-output" in tags(cell)]
    assert [cell.source for cell in checked if not cell.outputs] == []


def test_what_the_book_folds_is_folded_in_jupyter_and_in_colab_too(executed):
    for cell in executed.cells:
        folded = {"jupyter": {"source_hidden": True}, "cellView": "form"} if "hide-input" in tags(cell) else {}
        found = {key: cell.metadata[key] for key in ("jupyter", "cellView") if key in cell.metadata}
        assert found == folded, f"Run `make notebooks`: {cell.source}"


def test_no_output_is_an_error_or_a_warning(code_cells):
    outputs = [output for cell in code_cells for output in cell.outputs]
    assert [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"] == []


def test_it_holds_nothing_of_the_machine_that_ran_it(code_cells):
    kept = [(cell.source, cell.outputs) for cell in code_cells]
    assert [match[0] for match in PASSING.finditer(json.dumps(kept))] == []


def test_what_is_printed_fits_the_page(code_cells):
    texts = [
        output.get("text") or output.data.get("text/plain", "")
        for cell in code_cells
        for output in cell.outputs
        if {"text/html", "image/png", "image/svg+xml"}.isdisjoint(output.get("data", {}))  # they are shown in its place
    ]
    assert [line for text in texts for line in text.splitlines() if len(line) > PAGE] == []


@pytest.mark.parametrize("page", [*SOURCES, *sorted((ROOT / "book").glob("*.md"))], ids=lambda path: path.stem)
def test_no_line_is_printed_in_pieces(page):
    """They may arrive one by one, and the renderer puts a line break after each."""
    assert re.findall(r"print\(.*\bend=.*", page.read_text()) == []

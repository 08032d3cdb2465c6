"""A chapter is a pair: a .md, its source, and an .ipynb, the same cells and outputs; what its cells have to be."""

import ast
import json
import re
import tomllib

import jupytext
import pytest
from gnbook.checkout import ROOT, chapters

SOURCES = chapters()
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


@pytest.fixture(params=SOURCES, scope="module")
def name(request):
    return request.param


@pytest.fixture(scope="module")
def executed(name):
    return jupytext.read(SOURCES[name].with_suffix(".ipynb"))


@pytest.fixture(scope="module")
def code_cells(executed):
    return [cell for cell in executed.cells if cell.cell_type == "code"]


def tags(cell):
    return sorted(cell.metadata.get("tags", []))


def test_both_hold_the_same_cells_and_there_is_no_notebook_without_a_source(name, executed):
    ours, theirs = (
        [(cell.cell_type, cell.source, tags(cell)) for cell in notebook.cells]
        for notebook in (jupytext.read(SOURCES[name]), executed)
    )
    assert ours == theirs, "Run `make notebooks`."
    assert [*SOURCES] == [*chapters(".ipynb")]


def test_it_begins_with_the_installation_and_the_parameters(code_cells):
    assert code_cells[0].source == INSTALL
    assert tags(code_cells[0]) == ["install"]
    assert [i for i, cell in enumerate(code_cells) if "parameters" in tags(cell)] == [1]


def test_it_was_executed_in_order_without_an_error_or_a_warning(code_cells):
    counts = [cell.execution_count for cell in code_cells]
    assert counts == list(range(1, len(counts) + 1)), "Run `make notebooks`."
    outputs = [output for cell in code_cells for output in cell.outputs]
    assert outputs and not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]
    assert all(cell.outputs for cell in code_cells if "nbval-check-output" in tags(cell))
    kept = [(cell.source, cell.outputs) for cell in code_cells]
    assert [match[0] for match in PASSING.finditer(json.dumps(kept))] == []


def test_what_the_book_folds_is_folded_in_jupyter_and_in_colab_too(executed):
    for cell in executed.cells:
        folded = {"jupyter": {"source_hidden": True}, "cellView": "form"} if "hide-input" in tags(cell) else {}
        found = {key: cell.metadata[key] for key in ("jupyter", "cellView") if key in cell.metadata}
        assert found == folded, f"Run `make notebooks`: {cell.source}"


def test_what_is_printed_fits_the_page(code_cells):
    shown = {"text/html", "image/png", "image/svg+xml"}  # in place of the text
    outputs = [each for cell in code_cells for each in cell.outputs if shown.isdisjoint(each.get("data", {}))]
    texts = [output.get("text") or output.data.get("text/plain", "") for output in outputs]
    assert [line for text in texts for line in text.splitlines() if len(line) > PAGE] == []


def test_no_line_is_printed_in_pieces():
    """They may arrive one by one, and the renderer puts a line break after each."""
    pages = "".join(page.read_text() for page in [*SOURCES.values(), *(ROOT / "book").glob("*.md")])
    assert re.findall(r"print\(.*\bend=.*", pages) == []


def names(tree):
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def test_a_page_of_the_laboratory_computes_where_its_parameter_says(name, code_cells):
    """So that a sweep can send it to a GPU: data go there where they are loaded, or at a later step."""
    if not name.startswith("laboratory/"):
        return
    (parameter,) = (line for line in code_cells[1].source.splitlines() if line.startswith("device"))
    assert parameter.startswith('device = "cpu"  # ') and '"auto"' in parameter
    code = ast.parse("\n".join(cell.source for cell in code_cells[2:]))
    uses = [ast.unparse(statement) for statement in code.body if "device" in names(statement)]
    choice = "device = find_device(device)"
    assert uses.index(choice) == 0 and uses.count(choice) == 1 < len(uses)
    steps = [node for node in ast.walk(code) if isinstance(node, ast.stmt) and not hasattr(node, "body")]
    there = {name for step in steps if "device" in names(step) for name in names(step)}
    for step in steps:
        if "gnlib.load(" in ast.unparse(step) and "device" not in names(step):
            assert there & {name for target in getattr(step, "targets", []) for name in names(target)}

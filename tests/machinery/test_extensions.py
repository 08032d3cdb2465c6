"""What our extensions of Sphinx do to pages: the first picture of a lesson, and the words that a search knows."""

import importlib.util
from types import SimpleNamespace

import pytest
from docutils import nodes
from docutils.utils import new_document

from tests.pages.pages import ROOT


def extension(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "book" / "_ext" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def page():
    """A title, the question, a cell with its figure, and a cell that prints beside its figure."""
    document, section = new_document("page"), nodes.section()
    cells = [
        nodes.container("", nodes.literal_block("", "code"), nodes.container("", nodes.figure())) for _ in range(2)
    ]
    cells[1][1] += nodes.literal_block("", "printed")
    section += [nodes.title("", "Title"), nodes.paragraph("", "Question?"), nodes.paragraph("", "Code:"), *cells]
    document += section
    return document


def kinds(document):
    return [type(child).__name__ for child in document[0]]


def show_first(document, name):
    extension("picture_first").show_first(SimpleNamespace(env=SimpleNamespace(docname=name)), document)


def test_the_first_picture_of_a_lesson_comes_before_its_code(page):
    first = next(iter(page.findall(nodes.figure)))
    show_first(page, "notebooks/waiting")
    assert kinds(page) == ["title", "paragraph", "figure", "paragraph", "container", "container"]
    assert page[0][2] is first and len(page[0][4].children) == 1  # nothing is left of its output


@pytest.mark.parametrize("name", ["notebooks/laboratory/waiting", "book/index"])
def test_other_pages_stay_as_they_are(page, name):
    before = kinds(page)
    show_first(page, name)
    assert kinds(page) == before


def test_a_search_knows_prose_and_no_code():
    module = extension("search_prose")
    document = new_document("page")
    document += nodes.paragraph("", "", nodes.Text("sharpness "), nodes.math("", "lambda"), nodes.literal("", "report"))
    document += [nodes.literal_block("", "axis.plot"), nodes.math_block("", "eta")]
    collector = module.Prose(document, SimpleNamespace(lang="en", split=str.split))
    document.walk(collector)
    assert collector.found_words == ["sharpness", "report"]


@pytest.mark.parametrize(
    ("classes", "source", "output", "name"),
    [
        (["tag_parameters"], "n = 1", None, "The parameters"),
        ([], "f()", nodes.caption("", "Loss against steps. Dots: runs."), "The drawing: Loss against steps"),
        (
            [],
            "f()",
            nodes.raw("", "<table><caption>both <i>ends</i></caption></table>", format="html"),
            "The table: both ends",
        ),
        ([], "import numpy as np\na, b = 1, 2\ndef c(): pass\n_ = d = 1\ne = 1", None, "Code: a, b, c, d, ..."),
        ([], "%pip install x\nimport numpy as np", None, "Code: np"),
        ([], "f()", None, "Code: what is shown"),
    ],
)
def test_a_fold_is_named_by_what_its_cell_makes(classes, source, output, name):
    cell = nodes.container("", nodes.literal_block(source, source), classes=classes)
    cell["prompt_show"] = "Show code cell {type}"
    if output is not None:
        cell += output.deepcopy()
    document = new_document("page")
    document += cell
    named = nodes.container(prompt_show="The slider")
    document += named
    extension("named_folds").name_folds(None, document)
    assert (cell["prompt_show"], named["prompt_show"]) == (name, "The slider")

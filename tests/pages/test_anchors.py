"""Each number in a sentence is the value that its anchor names, and each test that a sentence names is there."""

import re
import runpy

import pytest
from docutils import nodes

from tests.pages.anchors import (
    ANCHOR,
    COMMENT,
    ROOT,
    TEST,
    has_names,
    pages,
    path,
    prose,
    rewritten,
    values_of,
    without_anchor,
    written,
)

TESTS = {name for path in ROOT.glob("tests/**/test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())}


@pytest.fixture(params=pages(), scope="module")
def page(request):
    return request.param


@pytest.fixture(scope="module")
def text(page):
    return path(page).read_text()


def test_each_number_is_the_value_that_its_anchor_names(page, text):
    known, anchors = values_of(page), [*ANCHOR.finditer(text)]
    assert {anchor["name"] for anchor in anchors} == {*known}
    shown = [(anchor["name"], anchor["number"]) for anchor in anchors]
    assert shown == [(name, written(known[name], number)) for name, number in shown], "Run `make numbers`."


@pytest.mark.parametrize("page", [page for page in pages() if has_names(page) and "/" not in page])
def test_each_number_of_a_lesson_has_an_anchor(page):
    assert without_anchor(path(page).read_text()) == []


def test_each_comment_is_an_anchor_of_a_number_or_of_a_test_that_is_there(text):
    tests = TEST.findall(prose(text))
    assert len(COMMENT.findall(prose(text))) == len(ANCHOR.findall(prose(text))) + len(tests)
    assert {*tests} <= TESTS


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        ("grows to 390<!-- v --> times", 412.3, "grows to 412<!-- v --> times"),
        ("a factor of 1.50<!-- v -->", 2, "a factor of 2.00<!-- v -->"),
        ("1,000<!-- v --> images", 1234567, "1,234,567<!-- v --> images"),
        ("d = 3072<!-- v --> pixels", 1024, "d = 1024<!-- v --> pixels"),
        ("980<!-- v --> steps", 1024, "1,024<!-- v --> steps"),
        ("from five<!-- v --> layers on", 6.0, "from six<!-- v --> layers on"),
        ("Five<!-- v --> layers", 6, "Six<!-- v --> layers"),
        ("$-0.57$<!-- v -->", -0.611, "$-0.61$<!-- v -->"),
        ("$m = 600\\, L$<!-- v --> for 3 of them", 150, "$m = 150\\, L$<!-- v --> for 3 of them"),
        ("+0.40<!-- v -->, 0<!-- v -->", -1e-17, "+0.00<!-- v -->, 0<!-- v -->"),
        ("3.1e+06<!-- v --> for", 214, "2.1e+02<!-- v --> for"),
        ("is 4<!-- =len(['a', 'b']) --> of", 2, "is 2<!-- =len(['a', 'b']) --> of"),
        ("13<!-- v --> %, 14<!-- v -->-fold", 12.6, "13<!-- v --> %, 13<!-- v -->-fold"),
    ],
)
def test_numbers_are_written_as_they_stand(before, value, after):
    assert rewritten(before, {"v": value, "=len(['a', 'b'])": value}) == after


def test_a_number_without_an_anchor_is_found():
    names = "Figure 2a, `x = 3`, Lemmas 1 and 7 (2024), [CIFAR-10](a-1.md), $L_2 = 1$, $$4$$"
    text = f"{names}: 12<!-- v --> of $r = 587$, 5 %."
    assert without_anchor(text) == ["587", "5"]


def test_no_page_shows_an_anchor():
    number, anchor, rest = nodes.Text("390"), nodes.raw("", "<!-- growth -->", format="html"), nodes.Text(" times")
    paragraph = nodes.paragraph("", "", number, anchor, rest, nodes.raw("", "<br>", format="html"))
    runpy.run_path(ROOT / "book/_ext/without_comments.py")["leave_out"](None, paragraph)
    assert paragraph.astext() == "390 times<br>"

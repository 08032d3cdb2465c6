"""Each number in a sentence is the value that its anchor names, and each test that a sentence names is there."""

import re

import pytest

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
        ("by 1.50<!-- v -->, 1,000<!-- v --> times", 1234567, "by 1,234,567.00<!-- v -->, 1,234,567<!-- v --> times"),
        ("d = 3072<!-- v --> pixels, 13<!-- v --> %", 1024.3, "d = 1024<!-- v --> pixels, 1,024<!-- v --> %"),
        ("Five<!-- v --> layers, from five<!-- v -->-fold on", 6.0, "Six<!-- v --> layers, from six<!-- v -->-fold on"),
        ("$-0.57$<!-- v -->", -0.611, "$-0.61$<!-- v -->"),
        ("$m = 600\\, L$<!-- v --> for 3 of them", 150, "$m = 150\\, L$<!-- v --> for 3 of them"),
        ("+0.40<!-- v -->, 0<!-- v -->", -1e-17, "+0.00<!-- v -->, 0<!-- v -->"),
        ("3.1e+06<!-- v --> for", 214, "2.1e+02<!-- v --> for"),
        ("is 4<!-- =len(['a', 'b']) --> of", 2, "is 2<!-- =len(['a', 'b']) --> of"),
    ],
)
def test_numbers_are_written_as_they_stand(before, value, after):
    assert rewritten(before, {"v": value, "=len(['a', 'b'])": value}) == after


def test_a_number_without_an_anchor_is_found():
    names = "Figure 2a, `x = 3`, Lemmas 1 and 7 (2024), [CIFAR-10](a-1.md), $L_2 = 1$, $$4$$"
    assert without_anchor(f"{names}: 12<!-- v --> of $r = 587$, 5 %.") == ["587", "5"]

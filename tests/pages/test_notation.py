"""One letter, one meaning: each Greek letter of a page stands in a general table of notation, or has a row for it."""

import re
from functools import cache

import pytest
from gnbook.checkout import ROOT, chapters

SMALL = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon phi chi psi omega"
)
ALPHABET = {form for name in SMALL.split() for form in (name, name.title(), f"var{name}")} | {"Pi"}  # and no number π
CODE = re.compile(r"^```\{code-cell\}.*?^```$", re.S | re.M)
FORMULA = re.compile(r"\$\$.*?\$\$|\$[^$\n]+\$|^```\{math\}.*?^```$", re.S | re.M)
PAGE = re.compile(r"\]\(\.\./notebooks/([\w/-]+)\.md\)")
GENERAL, SOME = (ROOT / "book" / "notation.md").read_text().split("## In some chapters only")


def greek(text):
    """Return the Greek letters in the formulas of a text."""
    return {name for formula in FORMULA.findall(text) for name in re.findall(r"\\([A-Za-z]+)", formula)} & ALPHABET


@cache
def letters(page):
    """Return the Greek letters of a page, its code aside."""
    return greek(CODE.sub("", chapters()[page].read_text()))


def rows(tables):
    """Return the Greek letters in the first cell of each row, and the pages that the row names."""
    return [(greek(first), PAGE.findall(rest)) for first, rest in re.findall(r"^\| (.*?) \|(.*)$", tables, re.M)]


@pytest.mark.parametrize("page", chapters())
def test_each_letter_of_a_page_is_on_the_page_on_notation(page):
    everywhere = {letter for found, _ in rows(GENERAL) for letter in found}
    assert letters(page) <= everywhere | {letter for found, pages in rows(SOME) if page in pages for letter in found}


def test_each_row_for_some_pages_names_only_those_that_use_its_letters():
    named = [(found, page) for found, pages in rows(SOME) for page in pages]
    assert named
    for found, page in named:
        assert found <= letters(page), (found, page)

"""What a page asks of a reader: short code, short outputs, nothing that only a test wants to know."""

import re
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

SITE = Path(__file__).parents[2] / "_build" / "html"
CHAPTERS = [  # all tests of a chapter in one process, which reads it once
    pytest.param(path, marks=pytest.mark.xdist_group(path.stem), id=path.stem)
    for path in sorted((SITE / "notebooks").glob("*.html"))
]
CODE = 15  # lines of a cell that is meant to be read
OUTPUT = 12  # lines of an output, or rows of a table
WHOLE = "network            n ="  # a whole report, shown once


@pytest.fixture(params=CHAPTERS, scope="module")
def page(request):
    return BeautifulSoup(request.param.read_text(), "html.parser")


def lines(block):
    return block.get_text().strip("\n").split("\n")


def is_folded(block, *, tags):
    return any(parent.name == "details" or tags & {*parent.get("class", ())} for parent in block.parents)


def test_code_that_is_shown_is_short(page):
    apart = {"tag_hide-input", "tag_install", "tag_parameters"}  # the latter are a list, for those who change it
    shown = [lines(cell) for cell in page.select("div.cell_input pre") if not is_folded(cell, tags=apart)]
    assert [f"{len(cell)} lines: {cell[0]}" for cell in shown if len(cell) > CODE] == []


def test_outputs_that_are_shown_are_short(page):
    def seen(blocks):
        return [block for block in blocks if not is_folded(block, tags={"tag_hide-output"})]

    printed = [block for block in seen(page.select("div.cell_output pre")) if not block.get_text().startswith(WHOLE)]
    tables = seen(page.select("div.cell_output table"))
    long = [f"{len(lines(block))} lines: {lines(block)[0]}" for block in printed if len(lines(block)) > OUTPUT]
    long += [f"{len(rows)} rows: {rows[0].get_text()}" for t in tables if len(rows := t.select("tbody tr")) > OUTPUT]
    assert long == []


def test_no_truth_value_is_printed(page):
    words = [block.get_text() for block in page.select("div.cell_output pre, div.cell_output table")]
    assert [text for text in words if re.search(r"\b(True|False)\b", text)] == []


def test_a_preview_of_a_link_has_the_title_and_the_first_paragraph(page):
    tags = {tag["property"]: tag["content"] for tag in page.select("head meta[property^='og:']")}
    assert page.find("h1").get_text().startswith(tags["og:title"])
    assert len(tags["og:description"]) > 20 and "\n" not in tags["og:description"]

"""The pages of claims and the tests of claims say the same thing."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = "".join(path.read_text() for path in sorted((ROOT / "book").glob("claims*.md")))
ROW = re.compile(r"^\| \[(?P<claim>.+?)\]\(#(?P<label>[\w-]+)\) \| (?P<verdict>[^|]+) \| [^|]+ \| [^|]+ \|$", re.M)
VERDICT = re.compile(r"^\*\*Verdict: (holds if|holds|fails|open)\b", re.M)
NAMED = re.compile(r"`(test_\w+)`")


@cache
def marked_tests():
    """Return the claim and verdict of each test of claims, read off its decorators."""
    tests = defaultdict(set)
    for path in sorted((ROOT / "tests" / "gnbook").glob("*/test_claims*.py")):
        for function in ast.parse(path.read_text()).body:
            if isinstance(function, ast.FunctionDef) and function.name.startswith("test_"):
                marks = [d for d in function.decorator_list if ast.unparse(d).startswith("pytest.mark.claim(")]
                assert marks, f"{path.name}: {function.name} names no claim"
                assert function.name not in tests, f"two tests are called {function.name}"
                for mark in marks:
                    (verdict,) = (keyword.value for keyword in mark.keywords)
                    tests[function.name] |= {(claim.value, verdict.value) for claim in mark.args}
    return tests


PIECES = re.split(r"^\(([\w-]+)\)=$", PAGES, flags=re.M)
SECTIONS = dict(zip(PIECES[1::2], (text.split("\n## ")[0] for text in PIECES[2::2]), strict=True))  # by their labels
CLAIMS = [match.groupdict() for match in ROW.finditer(PAGES)]


def test_the_tables_list_every_claim_of_the_tests_and_no_other():
    names = [row["claim"] for row in CLAIMS]
    assert len(set(names)) == len(names)
    assert {(row["claim"], row["verdict"]) for row in CLAIMS} == set().union(*marked_tests().values())


def test_no_two_rows_lead_to_one_section():
    labels = [row["label"] for row in CLAIMS]
    assert len(set(labels)) == len(labels) and set(labels) <= set(SECTIONS)


@pytest.mark.parametrize("row", CLAIMS, ids=lambda row: row["label"])
def test_the_section_gives_the_verdict_and_names_the_tests(row):
    section = SECTIONS[row["label"]]
    assert VERDICT.findall(section) == [row["verdict"]]
    tests = {name for name, marks in marked_tests().items() if (row["claim"], row["verdict"]) in marks}
    assert set(NAMED.findall(section)) == tests

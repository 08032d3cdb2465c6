"""The scorecard counts its own verdicts."""

import re
from collections import Counter

from tests.book.pages import ROOT, prose


def test_the_first_paragraph_counts_the_rows():
    page = (ROOT / "book" / "scorecard.md").read_text()
    found = Counter(re.findall(r"^\| [^|]+ \| \*\*(\w+)\*\* \|", page, re.M))
    assert {*found} == {"reproduced", "explained", "partly"}
    said = "Of the {} rows below {reproduced} are reproduced, {explained} explained and {partly} reproduced in part."
    assert said.format(found.total(), **found) in prose("book/scorecard")

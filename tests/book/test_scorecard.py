"""The scorecard counts its own verdicts."""

import re
from collections import Counter

from tests.book.behind_pruning import late_loss
from tests.book.pages import ROOT, prose
from tests.book.test_behind_the_figures import rule


def test_the_first_paragraph_counts_the_rows():
    page = (ROOT / "book" / "scorecard.md").read_text()
    found = Counter(re.findall(r"^\| [^|]+ \| \*\*(\w+)\*\* \|", page, re.M))
    assert {*found} == {"reproduced", "explained", "partly"}
    said = "Of the {} rows below {reproduced} are reproduced, {explained} explained and {partly} reproduced in part."
    assert said.format(found.total(), **found) in prose("book/scorecard")


def test_what_stands_behind_figures_9_and_13():
    card = prose("book/scorecard")
    gaps = [rule("float64, relative", epoch)["gap"] for epoch in (0, 100)]
    assert "by a factor of {:.2f} before training and of {:.1f} after".format(*gaps) in card
    losses = late_loss("every tensor", 0.6), late_loss("none", 0.0)
    assert "(a mean loss of {:.2f} and {:.2f} over the last twenty epochs)".format(*losses) in card

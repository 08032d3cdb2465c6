"""What the numbers of the scorecard are computed from, in words that the page uses; it counts its own verdicts."""

import re
from collections import Counter

import gnlib  # noqa: F401
from tests.pages.laboratory import test_design as design  # noqa: F401 (the page has its numbers)
from tests.pages.laboratory import test_pruning as pruning  # noqa: F401
from tests.pages.pages import ROOT, kept
from tests.pages.test_behind_the_figures import exponents, late_loss, lemma_2_over_kappa, relu, rule  # noqa: F401


def verdicts():
    return Counter(re.findall(r"^\| [^|]+ \| \*\*(\w+)\*\* \|", (ROOT / "book/scorecard.md").read_text(), re.M))


def kappas_of_rules():
    """Before training, by each of the seven rules."""
    return sorted(row["kappa"] for row in kept("counting-zeros") if (row["figure"], row["epoch"]) == ("9 rules", 0))

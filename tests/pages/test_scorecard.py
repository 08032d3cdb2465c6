"""The scorecard counts its own verdicts."""

import re
from collections import Counter

from gnbook import results

from tests.pages.pages import ROOT, prose, says
from tests.pages.test_behind_the_figures import exponents, late_loss, lemma_2_over_kappa, rule


def test_the_first_paragraph_counts_the_rows():
    page = (ROOT / "book" / "scorecard.md").read_text()
    found = Counter(re.findall(r"^\| [^|]+ \| \*\*(\w+)\*\* \|", page, re.M))
    assert {*found} == {"reproduced", "explained", "partly"}
    said = "the {} rows below {reproduced} are reproduced, {explained} explained and {partly} reproduced"
    assert said.format(found.total(), **found) in prose("book/scorecard")


def test_what_stands_behind_figures_9_and_13():
    card = prose("book/scorecard")
    gaps = [rule("float64, relative", epoch)["gap"] for epoch in (0, 100)]
    assert says(card, "of {:.2f} before ... of {:.1f} after", *gaps)
    losses = late_loss("every tensor", 0.6), late_loss("none", 0.0)
    assert "of {:.2f} and {:.2f} over".format(*losses) in card


def test_figure_9_is_explained_on_all_pages():
    page = (ROOT / "book" / "scorecard.md").read_text()
    assert "\n| 9 | **explained** |" in page
    assert "**Figure 9 is explained**" in prose("notebooks/laboratory/counting-zeros")
    assert "**It is explained**: the contrast" in prose("notebooks/laboratory/counting-zeros-further")


def test_the_networks_of_figure_18():
    card, rows = prose("book/scorecard"), [row for row in results.kept("counting-zeros") if row["figure"] == 18]
    kappa = {(row["width"], row["seed"], row["epoch"]): row["kappa_float64"] for row in rows}
    growth = sorted(kappa[100, seed, 100] / kappa[100, seed, 0] for seed in (0, 2))
    assert says(card, "grows {:.0f}-fold in one network and {:.0f}-fold in another,", *growth)
    capped = [key for key, after in kappa.items() if key[2] == 100 and after > 0.75 * 2**52 / 1e4]
    assert {(50, 0, 100), (50, 1, 100), (50, 2, 100), (100, 1, 100)} <= {*capped}


def test_figure_9_depends_on_the_rule_before_training():
    card = prose("book/scorecard")
    first = [row for row in results.kept("counting-zeros") if (row["figure"], row["epoch"]) == ("9 rules", 0)]
    kappas = sorted({float(f"{row['kappa']:.1e}") for row in first})
    assert len(first) == len(kappas) == 7
    assert f"from {kappas[0]:.0f} to {kappas[-1]:.0e}." in card


def test_figure_2a_is_quadratic_near_one_width():
    card = prose("book/scorecard")
    found = exponents()
    assert "exponent {:.1f} at width 400, {:.1f} at 800 and {:.1f} at".format(*found) in card
    assert f"most {lemma_2_over_kappa():.2f} times as large," in card
    assert found == sorted(found, reverse=True) and found[0] > 2.4

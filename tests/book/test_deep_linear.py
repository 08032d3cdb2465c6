"""The numbers in the text of "Deep linear networks" are those of its tables."""

import numpy as np
import pytest

from gnlib.chapters import results
from tests.book.pages import prose, table


@pytest.fixture(scope="module")
def page():
    return prose("notebooks/deep-linear")


def level(factor, depths):
    rows = [row for row in results.kept("deep-linear") if (row["figure"], row["line"]) == ("2b", factor)]
    return [np.mean([row["kappa"] for row in rows if row["depth"] == depth]) for depth in depths]


def test_width_in_proportion_sets_the_level(page):
    assert (
        "At $r / c = 1.0$ it is about 12, at $3.9$ about 110, and at $7.8$ the curve comes to 370 at depth 16" in page
    )
    assert [round(587 / factor, 1) for factor in (600, 150, 75)] == [1.0, 3.9, 7.8]
    assert level(600, range(5, 11)) == pytest.approx([12.3] * 6, rel=0.04)
    assert level(150, (12, 14, 16)) == pytest.approx([110] * 3, rel=0.02)
    assert f"{level(75, [16])[0]:.0f}" == "370"


def test_perturbation_theory_is_about_larger_factors(page):
    c, r, k, depth = 600, 587, 10, 10
    below = r * (2 * depth - 1) / (6 * (depth - 1))
    above = k * (depth - 2) * (2 * depth - 3) / (6 * depth * (depth - 1))
    kappa = 1 + 4 / c**0.5 * (below**0.5 + above**0.5)
    said = "for $c = 600$, hardly above $r$, and ten layers it gives {:.1f}, and the figure has {:.0f}"
    assert said.format(kappa, *level(c, [depth])) in page


def test_the_sharper_bound_on_raw_images(page):
    lines = [line.split() for line in table("deep-linear", "bounds over the condition number")]
    lemma = [float(line[4]) for line in lines if line[0] == "raw"]
    assert f"On raw images Lemma 2 is {min(lemma):.0f} to {max(lemma):.0f} times too large" in page
    assert "within 6 per cent everywhere" in page and max(float(line[6]) for line in lines) < 1.06

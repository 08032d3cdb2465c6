"""The findings of "Random layers" and of its further experiments, by their tables."""

import math

import pytest
from gnbook.random_layers import bounds
from gnbook.random_layers.blocks import KINDS

from tests.pages.pages import table


def lines_of(caption, page="laboratory/random-layers-further"):
    """Return the numbers of the lines under the head of the table with this caption, by their first column."""
    lines = [line.replace(",", "").replace("inf", "Infinity").split() for line in table(page, caption)]
    return {line[0]: [float(word.rstrip("%")) for word in line[1:] if word != "-"] for line in lines}


def over_the_limit(r):
    """By how many per cent the symmetric bound is too large in the limit."""
    return 100 * (bounds.riedi_theorem_38(r).symmetric / bounds.skip_condition_limit(r) - 1)


def test_bounds_are_within_ten_per_cent():
    of = lines_of("bounds over true values")
    assert max(numbers[2] for numbers in of.values()) < 1.1
    limit = bounds.riedi_theorem_38(2).symmetric
    lines = [line.split() for line in table("laboratory/random-layers-further", "means of κ(W + I)")]
    means = {n: (float(mean), float(share.rstrip("%"))) for n, mean, share, *_ in lines if n.isdigit()}
    assert limit / means["100"][0] == pytest.approx(1.1, abs=0.01) and means["5"][1] == 0.5
    assert limit / means["5"][0] == pytest.approx(1.25, abs=0.01)
    assert over_the_limit(3) < over_the_limit(2) < 10 and not math.isfinite(bounds.riedi_theorem_38(1).symmetric)


def test_with_three_seeds_skips_end_lower_and_branches_that_start_at_zero_lowest():
    lines = [line.split("  ") for line in table("laboratory/random-layers", "loss before and after 30 epochs")]
    found = {words[0]: [float(word) for word in " ".join(words[1:]).split()[:4]] for words in lines}
    without, usual, zero = (found[kind] for kind in KINDS)
    assert all(a > b > c for a, b, c in zip(without[1:], usual[1:], zero[1:], strict=True))

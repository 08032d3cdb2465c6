"""The findings of "Which eigenvalues are zero?", by the tables of its pages."""

import pytest

from tests.pages.pages import named, number, texts

FIRST = "laboratory/counting-zeros"
TRUE, FLOAT64 = "singular values, relative", "float64, relative"


def rules(epoch):
    """By rule: rank, condition number and gap."""
    at = slice(0, 3) if epoch == 0 else slice(3, 6)
    return {name: row[at] for name, row in named(FIRST, "seven rules, 2000 eigenvalues").items()}


def test_the_rules_on_one_network():
    before, after = rules(0), rules(100)
    kappas = sorted(kappa for _, kappa, _ in after.values())
    assert (len(kappas), len({*kappas})) == (7, 6)
    _, regular, _ = before[TRUE]
    assert sorted((kappa == regular, gap) for _, kappa, gap in before.values() if gap) == [(False, 1)] * 3
    (rank, kappa, gap), (stops, lower, missed) = after[TRUE], after[FLOAT64]
    assert 1e18 < gap < 1e19
    assert kappa / lower == pytest.approx(missed, rel=0.03) and stops == rank - 1


def by_width():
    """Width, loss, rule, and κ and rank before training and after."""
    (lines,) = (text.splitlines()[2:] for text in texts(FIRST) if "caps κ at" in text.partition("\n")[0])
    return [[number(word) for word in line.split()] for line in lines]

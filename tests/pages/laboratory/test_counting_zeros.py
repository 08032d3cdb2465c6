"""The findings of "Which eigenvalues are zero?", by the tables of its pages."""

import pytest

from tests.pages.pages import named, number, texts

FIRST, SECOND = "laboratory/counting-zeros", "laboratory/counting-zeros-further"
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


def test_the_library_finds_the_rank():
    before, after = named(FIRST, "gnlib.condition_number(net, x)").values()
    assert before[:2] == [2000, 2000] and after[0] - after[1] == 3
    assert after[1] == rules(100)[TRUE][0]


def by_width():
    """Width, loss, rule, and κ and rank before training and after."""
    (lines,) = (text.splitlines()[2:] for text in texts(FIRST) if "caps κ at" in text.partition("\n")[0])
    return [[number(word) for word in line.split()] for line in lines]


def test_width_and_the_cap():
    growth = {row[0]: row[5] / row[3] for row in by_width()[:5]}
    assert [growth[m] for m in (50, 100)] == pytest.approx([2 / 3] * 2, abs=0.05) and growth[30] > 1000

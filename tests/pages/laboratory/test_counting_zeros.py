"""The numbers in the text of "Which eigenvalues are zero?" are those of its tables."""

import pytest

from tests.pages.pages import named, number, prose, says, scientific, slider, texts

FIRST, SECOND = "laboratory/counting-zeros", "laboratory/counting-zeros-further"
TEXT = prose(f"notebooks/{FIRST}")
TRUE, FLOAT64 = "singular values, relative", "float64, relative"


def rules(epoch):
    """By rule: rank, condition number and gap."""
    at = slice(0, 3) if epoch == 0 else slice(3, 6)
    return {name: row[at] for name, row in named(FIRST, "seven rules, 2000 eigenvalues").items()}


def test_the_rules_on_one_network():
    before, after = rules(0), rules(100)
    kappas = sorted(kappa for _, kappa, _ in after.values())
    assert (len(kappas), len({*kappas})) == (7, 6)
    (full, regular, _), margins = before[TRUE], [1 / (before[TRUE][1] * 2.0 ** (-52 * power)) for power in (1, 2)]
    assert f"all {full:,.0f} eigenvalues" in TEXT
    assert sorted((kappa == regular, gap) for _, kappa, gap in before.values() if gap) == [(False, 1)] * 3
    said = f"${scientific(margins[0])}$"
    assert said in TEXT and f"{margins[1]:.0e}" == "1e+22"
    (rank, kappa, gap), (stops, lower, missed) = after[TRUE], after[FLOAT64]
    assert f"find {rank:,.0f} eigenvalues" in TEXT and 1e18 < gap < 1e19
    assert f"number {missed:.0f} times" in TEXT
    assert kappa / lower == pytest.approx(missed, rel=0.03) and stops == rank - 1


def test_the_threshold_decides():
    found = {name.partition(",")[0]: name.partition("κ ")[2].split(" → ") for name in slider(SECOND)}
    kappas = {tau: [float(kappa) for kappa in pair] for tau, pair in found.items()}
    assert {kappas[f"1e-{power}"][0] for power in range(10, 21)} == {rules(0)[TRUE][1]} != {kappas["1e-9"][0]}
    low, right = (scientific(kappas[tau][1], 1) for tau in ("1e-11", "1e-14"))
    assert says(TEXT, f"${low}$ ... ${right}$,")


def test_the_library_finds_the_rank():
    before, after = named(FIRST, "gnlib.condition_number(net, x)").values()
    assert before[:2] == [2000, 2000] and after[0] - after[1] == 3
    assert after[1] == rules(100)[TRUE][0]


def by_width():
    """Width, loss, rule, and κ and rank before training and after."""
    (lines,) = (text.splitlines()[2:] for text in texts(FIRST) if "caps κ at" in text.partition("\n")[0])
    return [[number(word) for word in line.split()] for line in lines]


def test_width_and_the_cap():
    live = by_width()
    (cap,) = {row[i] for row in live[5:] for i in (3, 5)}
    assert f"about {cap:,.0f}" in TEXT
    kappas = {row[0]: [row[3], row[5]] for row in live[:5]}
    growth = {m: after / before for m, (before, after) in kappas.items()}
    first, last = (kappas[m][0] for m in (20, 100))
    ends = scientific(first, 1), scientific(last, 1), round(first / last, -4)
    assert says(TEXT, "from ${}$ at ... to ${}$ at ... {:,.0f}-fold.", *ends)
    said = f"of {round(growth[30], -3):,.0f},"
    assert said in TEXT and [growth[m] for m in (50, 100)] == pytest.approx([2 / 3] * 2, abs=0.05)
    right = rules(100)[TRUE][1] / rules(0)[TRUE][1]
    assert f"some {round(right, -3):,.0f}-fold" in TEXT
    assert "${}$ to ${}$.".format(*(scientific(kappa, 1) for kappa in kappas[15])) in TEXT

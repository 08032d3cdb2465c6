"""The numbers in the text of "Random layers" and of its further experiments are those of their own tables."""

import math

import numpy as np
import pytest
from gnbook.random_layers import bounds
from gnbook.random_layers.blocks import KINDS
from gnbook.random_layers.bounds import norm_of

from tests.pages.pages import prose, says, table

TEXT, FURTHER = prose("notebooks/laboratory/random-layers"), prose("notebooks/laboratory/random-layers-further")


def lines_of(caption, page="laboratory/random-layers-further"):
    """Return the numbers of the lines under the head of the table with this caption, by their first column."""
    lines = [line.replace(",", "").replace("inf", "Infinity").split() for line in table(page, caption)]
    return {line[0]: [float(word.rstrip("%")) for word in line[1:] if word != "-"] for line in lines}


def test_steps_of_descent():
    of = lines_of("steps to a thousandth (last two columns: a millionth) of the loss")
    few, many = of["5"], of["100"]
    ends = few[0], many[0], few[2], many[2]
    assert says(FURTHER, "{:,.0f} steps at 5 units and {:,.0f} at 100, ... {:.0f} to {:.0f}.", *ends)
    shown = [
        line.replace(",", "").split()[-2:] for line in table("laboratory/random-layers", "steps of gradient descent")
    ]
    assert [float(word) for words in shown for word in words] == many


def test_the_bound_of_the_chapter():
    of = lines_of("how far the sharper bound, computed from each layer, is above its κ")
    assert list(of) == ["5", "10", "25", "50", "100"] and all(0 < mean < 3 for mean, *_ in of.values())
    limit = bounds.riedi_theorem_38(2).sharper
    assert f"is {limit:.2f}." in TEXT and bounds.skip_condition_limit(2) < limit
    means = [mean for mean, *_ in of.values()]
    assert f"is {min(means)} to {max(means)} %" in TEXT


def test_bounds_are_within_ten_per_cent():
    of = lines_of("bounds over true values")
    means = [100 * (numbers[2] - 1) for n, numbers in of.items() if n != "limit"]
    low, high = f"{min(means):.0f}", f"{max(means):.0f}"
    assert f"is {low} to {high} %" in FURTHER
    assert max(numbers[2] for numbers in of.values()) < 1.1
    limit = bounds.riedi_theorem_38(2).symmetric
    assert f"is {limit:.2f}." in FURTHER
    assert f"is {bounds.riedi_theorem_38(2).sharper:.2f}." in FURTHER
    lines = [line.split() for line in table("laboratory/random-layers-further", "means of κ(W + I)")]
    means = {n: (float(mean), float(share.rstrip("%"))) for n, mean, share, *_ in lines if n.isdigit()}
    assert limit / means["100"][0] == pytest.approx(1.1, abs=0.01) and means["5"][1] == 0.5
    assert limit / means["5"][0] == pytest.approx(1.25, abs=0.01)
    assert f"is {100 * (of['limit'][2] - 1):.1f} %." in FURTHER
    ratios = {r: bounds.riedi_theorem_38(r).symmetric / bounds.skip_condition_limit(r) for r in (1.5, 1.2, 1.1, 2, 3)}
    loose = [f"{100 * (ratios[r] - 1):.0f} %" for r in (1.5, 1.2, 1.1)]
    norms = [f"{norm_of(r):.2f}" for r in (1.5, 1.2, 1.1, 1)]
    quoted = "by {} at norm {}, {} at {} and {} at {}, and at {} it"
    assert quoted.format(*(word for pair in zip(loose, norms, strict=False) for word in pair), norms[3]) in FURTHER
    assert ratios[3] < ratios[2] < 1.1 and not math.isfinite(bounds.riedi_theorem_38(1).symmetric)


def test_what_the_skip_is_worth():
    exact = bounds.skip_condition_limit(2)
    gains = [numbers[-1] for n, numbers in lines_of("κ without a skip over the width").items() if n != "limit"]
    gain = f"{min(gains):.1f} to {max(gains):.1f}"
    assert f"of {gain} |" in FURTHER
    assert f"to {exact:.2f}." in FURTHER


def test_the_worst_pattern_is_nearly_the_one_with_all_units_on():
    found = lines_of("kappa of one Gaussian layer")
    for norm, (active, at_random, worst, bound) in found.items():
        assert at_random < active <= worst <= bound and (worst < 1.1 * active or float(norm) > 0.94)
    active, at_random, worst, bound = found["2.83"]
    assert (
        says(FURTHER, f"= {active:.0f}$, ... about {at_random:.0f},")
        and worst > 7000
        and bound == math.inf == found["2.00"][-1]
    )
    assert f"give {active:.0f}." in TEXT
    assert all(of[-1] < 1.1 * of[-2] for norm, of in found.items() if float(norm) <= norm_of(2))


@pytest.fixture(scope="module")
def blocks():
    """Medians in each state: κ with the skip and without, both after the last ReLU, and the norm of the branch."""
    found = {}
    for line in table("laboratory/random-layers-further", "medians over the images"):
        words = line.rsplit(maxsplit=14)
        norm, _, _, skip, _, none, _, skip_relu, none_relu, _ = map(float, (word.rstrip("%") for word in words[-10:]))
        found.setdefault(words[0].split()[0], []).append((skip, none, skip_relu, none_relu, norm))
    return {state: np.array(rows).T for state, rows in found.items()}


@pytest.fixture(scope="module")
def shares():
    """Of blocks and images, in each state: bounds in the region and everywhere, promised, improved, after the ReLU."""
    found = {}
    for line in table("laboratory/random-layers-further", "shares of blocks and images"):
        words = line.rsplit(maxsplit=6)
        found[words[0].split()[0]] = [float(word.rstrip("%")) for word in words[1:]]
    return found


def test_where_bounds_are_left(shares, blocks):
    assert shares["trained"][:2] == shares["with"][:2] == [0, 0]
    assert shares["drawn"][:2] == shares["started"][:2] == [100, 100]
    norms, kappa = blocks["started"][-1], blocks["started"][0]
    assert (f"{kappa.min():.2f}", f"{kappa.max():.2f}", len(norms)) == ("1.05", "1.49", 7)
    drawn, normalised, trained = (blocks[state][-1] for state in ("drawn", "with", "trained"))
    shown = [line for line in table("laboratory/random-layers", "loss before and after 30 epochs") if " to " in line]
    between = [f"{found.min():.2f} to {found.max():.2f}" for found in (trained, norms)]
    assert [line.endswith(numbers) for line, numbers in zip(shown, between, strict=True)] == [True, True]
    kappa = blocks["drawn"][0]
    assert f"is {kappa.min():.1f} to {kappa.max():.1f}." in FURTHER
    said = "branches {:.1f} to {:.1f} before ... were {:.1f} to {:.1f} as"
    assert says(FURTHER, said, normalised.min(), normalised.max(), drawn.min(), drawn.max())


def test_where_the_skip_helps(shares):
    assert all(improves == 100 and broken == 0 for *_, improves, _, broken in shares.values())
    drawn, trained, from_zero = (shares[state][4] for state in ("drawn", "trained", "started"))
    assert says(FURTHER, "in {:.0f} % of ... in {:.0f} % of ... in {:.0f} %", drawn, trained, from_zero)
    assert 50 < min(drawn, trained, from_zero) < 100


def test_where_the_skip_helps_by_medians(blocks):
    skip, none, skip_relu, none_relu, _ = blocks["trained"]
    medians = skip.min(), skip.max(), none.min(), none.max()
    assert says(FURTHER, "are {:.1f} to {:.0f} with ... {:.0f} to {:.0f} without", *medians)
    assert says(TEXT, "are {:.1f} to {:.0f}, ... {:.0f} to {:.0f}.", *medians)
    assert (skip < none).all() and (skip_relu < none_relu).tolist().count(True) == 6 and len(skip) == 7


def test_the_losses_of_three_seeds():
    lines = [line.split("  ") for line in table("laboratory/random-layers", "loss before and after 30 epochs")]
    found = {words[0]: [float(word) for word in " ".join(words[1:]).split()[:4]] for words in lines}
    without, usual, zero = (found[kind] for kind in KINDS)
    assert all(a > b > c for a, b, c in zip(without[1:], usual[1:], zero[1:], strict=True))
    assert sorted(b / c < 1.2 for b, c in zip(usual[1:], zero[1:], strict=True)) == [False, False, True]

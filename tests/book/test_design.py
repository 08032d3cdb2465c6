"""The numbers in the text of "Design" are those of its kept table and of its own outputs."""

import numpy as np
import pytest

from gnlib.chapters import results
from gnlib.chapters.design.families import FAMILIES, HELD_OUT, build
from gnlib.chapters.design.initialisations import SEARCHED, UNTUNED
from gnlib.chapters.design.trial import CHOICE, ENOUGH, speedups
from tests.book.pages import prose, table


@pytest.fixture(scope="module")
def text():
    return prose("notebooks/design")


@pytest.fixture(scope="module")
def held():
    """Gradient descent on the families held out."""
    return [row for row in results.kept("design") if row["held_out"] and row["optimizer"] == "descent"]


@pytest.fixture(scope="module")
def bar(held):
    return max(UNTUNED, key=lambda name: speedups(held, name, "torch's default")[0])


def steps(rows, family, name):
    return [row["steps"] for row in rows if (row["family"], row["initialisation"]) == (family, name)]


def test_what_was_run(text, held):
    assert {row["family"] for row in held} == set(HELD_OUT)
    assert {row["initialisation"] for row in held} == {*UNTUNED, *SEARCHED}
    assert {row["seed"] for row in held} == {1} and "with one seed" in text
    sizes = [sum(p.numel() for p in build(family, seed=0).parameters()) for family in FAMILIES]
    assert "of 7,300 to 49,900 parameters" in text
    assert (round(min(sizes), -2), round(max(sizes), -2)) == (7300, 49_900)


def test_what_was_chosen_beforehand(text):
    assert f"the choice is `{CHOICE}`; success is {ENOUGH} times the speed" in text


def test_the_choice_is_no_success(text, held, bar):
    value, low, high = speedups(held, CHOICE, bar)
    assert f"reached {value:.2f} times their speed on families that were held out" in text
    assert f"reach {value:.2f} times the speed of the bar, [{low:.2f}, {high:.2f}]" in text
    assert value < ENOUGH and low < 1 < high and "It is no success." in text
    assert all(speedups(held, name, bar)[0] < ENOUGH for name in SEARCHED)  # "were not beaten by 1.3 by any search"


def test_the_condition_number_and_gradinit(text, held, bar):
    kappa, other = (speedups(held, name, bar)[0] for name in ("condition number", "GradInit"))
    assert f"train at {kappa:.2f} times the speed of the best initialisation that nobody searches for" in text
    assert f"have {kappa:.2f}." in text and f"GradInit, at {other:.2f}, is" in text


def test_where_it_is_ahead_and_where_behind(text, held, bar):
    assert "They are ahead on the deep CNN" in text
    assert steps(held, "deep CNN", CHOICE) < steps(held, "deep CNN", bar)
    assert "far behind on the funnel" in text
    (here,), (there,) = (steps(held, "funnel, leaky ReLU", name) for name in (CHOICE, bar))
    assert here > 2 * there
    narrow = [row["steps"] for row in held if row["family"] == "deep and narrow"]
    assert "In the narrow network of nine layers nothing arrives at all" in text and narrow == [None] * 12


def test_what_searches_cost(text, held):
    costs = [row["search_seconds"] / row["step_seconds"] for row in held if row["search_seconds"]]
    assert "as much as 75 to 1,800 of them" in text
    assert round(min(costs), -1) in (70, 80) and round(max(costs), -2) == 1800


def numbers(line):
    return [float(word.replace(",", "")) for word in line.split() if word.replace(",", "").replace(".", "").isdigit()]


def test_gains_lower_kappa_little_and_features_much(text):
    rows = {line[:16].strip(): numbers(line[16:])[-3:] for line in table("design", "condition number at Kaiming's")}
    before, after, certificate = np.array([*rows.values()]).T
    assert "Gains halve $\\kappa$ at best" in text and 0.45 < (after / before).min() < 0.55
    assert (certificate <= after).all() and rows["MLP"][2] < after[0] / 5
    lines = [line.rsplit(maxsplit=2) for line in table("design", "25 images, Kaiming's weights, to a tenth")]
    kappas = {tuple(name.split()): float(kappa.replace(",", "")) for name, kappa, _ in lines}
    plain, features = (kappas["standardised", name] for name in ("none", "features"))
    assert f"lowers it from {plain:,.0f} to {features:,.0f} on a small perceptron" in text
    assert f"the best gains get to {rows['MLP'][1]:,.0f}." in text and plain == rows["MLP"][0]


def test_the_loss_at_the_start_orders_what_kappa_does_not():
    for line in table("design", "rank correlation with the steps, over the twelve"):
        kappa, initial = numbers(line.replace("-", " "))[-2:]
        assert initial > kappa + 0.3

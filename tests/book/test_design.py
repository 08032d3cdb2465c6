"""The numbers in the text of "Design" are those of its kept table and of its own outputs."""

import numpy as np
import pytest

from gnlib.chapters import results
from gnlib.chapters.design.families import FAMILIES, HELD_OUT, build
from gnlib.chapters.design.initialisations import SEARCHED, UNTUNED
from gnlib.chapters.design.trial import CHOICE, ENOUGH, HORIZON, speedups
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
    assert bar == "torch's default" and "torch's default, the best initialisation that nobody searches for" in text
    assert f"reached {value:.2f} times its speed on families that were held out" in text
    assert f"reach {value:.2f} times the speed of torch's default, [{low:.2f}, {high:.2f}]" in text
    assert value < ENOUGH and low < 1 < high and "It is no success." in text
    assert "torch's default was not beaten by any search" in text
    assert all(speedups(held, name, bar)[0] < 1 for name in SEARCHED)


def test_the_condition_number_and_gradinit(text, held, bar):
    (kappa, _, high), (other, *_) = (speedups(held, name, bar) for name in ("condition number", "GradInit"))
    assert f"train at {kappa:.2f} times the speed of torch's default" in text
    assert f"Kaiming's weights, which they multiply, have {speedups(held, 'Kaiming', bar)[0]:.2f}:" in text
    assert f"have {kappa:.2f}, with an interval below 1. GradInit has {other:.2f}." in text and high < 1


def test_where_it_is_ahead_and_where_behind(text, held, bar):
    both = {family: [steps(held, family, name) for name in (bar, CHOICE)] for family in HELD_OUT}
    ahead = [both[family][0][0] / both[family][1][0] for family in ("CNN, BatchNorm", "deep CNN")]
    assert "They are ahead on the two convolutional networks, by {:.1f} and {:.1f}".format(*ahead) in text
    (there,), (here,) = both["funnel, leaky ReLU"]
    assert "take three times as many steps on the funnel" in text and here / there == pytest.approx(3, abs=0.3)
    narrow = [row["steps"] for row in held if row["family"] == "deep and narrow"]
    assert "In the narrow network of nine layers nothing arrives at all" in text and narrow == [None] * 12


def test_a_last_layer_at_zero(text, held):
    assert "faster than Kaiming's weights in two of the three families in which anything arrives" in text
    pairs = {
        family: [steps(held, family, name)[0] or HORIZON for name in ("last layer zero", "Kaiming")]
        for family in HELD_OUT
        if family != "deep and narrow"
    }
    zero, kaiming = pairs.pop("CNN, BatchNorm")
    assert "slower with batch normalisation" in text and zero > kaiming
    assert all(zero < kaiming for zero, kaiming in pairs.values())


def test_what_searches_cost(text, held):
    costs = [row["search_seconds"] / row["step_seconds"] for row in held if row["search_seconds"]]
    assert "as much as 100 to 1,300 of them" in text
    assert (round(min(costs), -2), round(max(costs), -2)) == (100, 1300)


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


def test_the_four_trainings_of_the_first_figure(text):
    lines = [line.rsplit(maxsplit=3) for line in table("design", "the four trainings of the figure")]
    found = {name: [float(word.replace(",", "")) for word in words] for name, *words in lines}
    (kappa, low, soon), (other, _, late) = found["torch's default"], found["Kaiming"]
    of_kappa, of_forecast = found["gains, condition number"], found["gains, forecast"]
    assert "has about six times the condition number of the others" in text
    assert all(5.5 < kappa / one[0] < 7.5 for one in (found["Kaiming"], of_kappa, of_forecast))
    assert "and arrives about three times as soon as Kaiming's weights" in text and late / soon == pytest.approx(
        3, abs=0.3
    )
    assert "do not even make $\\kappa$ smaller" in text and of_kappa[2] == late and of_kappa[0] > other
    assert "The two fast ones begin lower." in text and max(low, of_forecast[1]) < min(found["Kaiming"][1], of_kappa[1])
    assert max(soon, of_forecast[2]) < late


def test_what_orders_initialisations(text):
    lines = [line.rsplit(maxsplit=2) for line in table("design", "rank correlation with the steps, over the twelve")]
    found = {family: (float(kappa), float(initial)) for family, kappa, initial in lines}
    normalised = found.pop("CNN, BatchNorm")
    assert "In the two families without a normalisation, yes, and $\\kappa$ does not" in text and len(found) == 2
    assert all(kappa < 0.3 and initial > 0.7 for kappa, initial in found.values())
    assert "with batch normalisation it is the other way round" in text and normalised[0] > normalised[1] + 0.2

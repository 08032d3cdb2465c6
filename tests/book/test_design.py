"""The numbers in the text of "Design" are those of its kept table and of its own outputs."""

import numpy as np
import pytest
import torch

from gnlib.chapters import results
from gnlib.chapters.design.families import FAMILIES, HELD_OUT, build
from gnlib.chapters.design.initialisations import SEARCHED, UNTUNED
from gnlib.chapters.design.trial import CHOICE, ENOUGH, HORIZON, LEAST, arriving, speedups
from tests.book.pages import prose, table


@pytest.fixture(scope="module")
def text():
    return prose("notebooks/design")


@pytest.fixture(scope="module")
def held():
    """Gradient descent on the families held out."""
    return [row for row in results.kept("design") if row["held_out"] and row["optimizer"] == "descent"]


@pytest.fixture(scope="module")
def counted(held):
    """Those of them in which trainings arrive."""
    return arriving(held)


@pytest.fixture(scope="module")
def bar(counted):
    return max(UNTUNED, key=lambda name: speedups(counted, name, "Kaiming")[0])


def of_family(rows, family):
    return [row for row in rows if row["family"] == family]


def mean_of(rows, name, column):
    """Return the geometric mean of a column over the seeds; what does not arrive counts as the horizon."""
    return np.exp(np.mean([np.log(row[column] or HORIZON) for row in rows if row["initialisation"] == name]))


def test_what_was_run(text, held):
    table = results.kept("design")
    assert {row["family"] for row in held} == set(HELD_OUT)
    assert {row["initialisation"] for row in held} == {*UNTUNED, *SEARCHED}
    assert "It has the held-out families under gradient descent, with one seed of each." in text
    assert {(row["held_out"], row["optimizer"], row["seed"]) for row in table} == {(True, "descent", 1)}
    sizes = [sum(p.numel() for p in build(family, seed=0).parameters()) for family in FAMILIES]
    assert "of 7,300 to 49,900 parameters" in text
    assert (round(min(sizes), -2), round(max(sizes), -2)) == (7300, 49_900)


def test_what_was_chosen_beforehand(text):
    assert f"the choice is `{CHOICE}`; success is {ENOUGH} times the speed" in text


def test_the_choice_is_no_success(text, held, counted, bar):
    value, low, high = speedups(counted, CHOICE, bar)
    assert bar == "torch's default" and "A search for better numbers did not beat the weights that torch draws" in text
    assert f"reach {value:.2f} times the speed of torch's default, where {ENOUGH} was to count as success" in text
    over_kaiming = speedups(counted, CHOICE, "Kaiming")[0]
    assert f"They are {over_kaiming:.2f} times as fast as the Kaiming weights that they multiply" in text
    assert over_kaiming < speedups(counted, bar, "Kaiming")[0] and "torch's default has that for nothing" in text
    assert "torch's default was not beaten by any search" in text
    assert all(speedups(rows, name, bar)[0] < 1 for name in SEARCHED for rows in (held, counted))
    whole, *ends = speedups(held, CHOICE, bar)
    assert "the gains of the forecast have {:.2f} [{:.2f}, {:.2f}]. It is no success".format(whole, *ends) in text
    assert value < ENOUGH and whole < ENOUGH and low < 1 < high and ends[0] < 1 < ends[1]


def test_the_condition_number_and_gradinit(text, counted, bar):
    (kappa, _, high), (other, *_) = (speedups(counted, name, bar) for name in ("condition number", "GradInit"))
    over_kaiming = speedups(counted, "condition number", "Kaiming")[0]
    assert f"have {kappa:.2f} times the speed of torch's default, with an interval below 1, and" in text and high < 1
    assert f"and {over_kaiming:.2f} times that of Kaiming's weights." in text
    assert f"The better of the two searches of others, GradInit, reaches {other:.2f}." in text
    assert other > speedups(counted, "MetaInit", bar)[0]


def test_where_it_is_ahead_and_where_behind(text, held, counted, bar):
    by_family = {family: speedups(of_family(counted, family), CHOICE, bar)[0] for family in HELD_OUT[1:]}
    ahead = by_family["CNN, BatchNorm"], by_family["deep CNN"]
    assert "ahead of torch's default on the two convolutional networks, by {:.1f} and {:.1f}".format(*ahead) in text
    assert "It takes three times as many steps on the funnel" in text
    assert 1 / by_family["funnel, leaky ReLU"] == pytest.approx(3, abs=0.3)
    narrow = [row["steps"] is not None for row in of_family(held, "deep and narrow")]
    assert f"In `deep and narrow`, nine layers, {sum(narrow)} of {len(narrow)} do." in text and np.mean(narrow) < LEAST
    assert {row["family"] for row in counted} == {*HELD_OUT[1:]}


def test_no_initialisation_is_ahead_everywhere(text, counted, bar):
    assert "No initialisation is to the right of one in all families." in text
    families = [of_family(counted, family) for family in HELD_OUT[1:]]
    for name in {*UNTUNED, *SEARCHED} - {bar}:
        assert min(speedups(rows, name, bar)[0] for rows in families) <= 1


def test_orthogonal_weights_have_a_small_kappa_and_are_slower(text, counted, bar):
    assert (
        "in all three families they have the smaller $\\kappa$, a loss at the start that is several times as high"
        in text
    )
    for family in HELD_OUT[1:]:
        rows = of_family(counted, family)
        kappa, loss, steps = (
            mean_of(rows, "orthogonal", column) / mean_of(rows, bar, column)
            for column in ("kappa", "initial_loss", "steps")
        )
        assert kappa < 1 and loss > 3 and steps > 1


def test_a_last_layer_at_zero(text, counted):
    assert "faster than Kaiming's weights in two of the three families in which trainings arrive" in text
    over = {family: speedups(of_family(counted, family), "last layer zero", "Kaiming")[0] for family in HELD_OUT[1:]}
    assert "slower with batch normalisation" in text and over.pop("CNN, BatchNorm") < 1
    assert all(speed > 1 for speed in over.values())


def test_what_searches_cost(text, counted, bar):
    costs = [row["search_seconds"] / row["step_seconds"] for row in counted if row["search_seconds"]]
    assert "as much as 150 to 1,300 of them" in text
    assert (round(min(costs) / 50) * 50, round(max(costs), -2)) == (150, 1300)
    assert "With its search charged" in text and "none comes near torch's default" in text
    assert all(speedups(counted, name, bar, charged=True)[0] < 0.3 for name in SEARCHED)


def test_torch_draws_a_sixth_of_the_variance(text):
    assert "it draws weights of a sixth of the variance of Kaiming's" in text
    torch.manual_seed(0)
    for layer, inputs in ((torch.nn.Linear(500, 400), 500), (torch.nn.Conv2d(50, 60, 3), 450)):
        assert layer.weight.var().item() == pytest.approx(2 / inputs / 6, rel=0.05)


def numbers(line):
    return [float(word.replace(",", "")) for word in line.split() if word.replace(",", "").replace(".", "").isdigit()]


def test_gains_lower_kappa_little_and_features_much(text):
    rows = {line[:16].strip(): numbers(line[16:])[-3:] for line in table("design", "condition number at Kaiming's")}
    before, after, certificate = np.array([*rows.values()]).T
    assert "Gains halve $\\kappa$ at best" in text and 0.45 < (after / before).min() < 0.55
    assert (certificate <= after).all() and rows["MLP"][2] < after[0] / 5
    assert f"where the best gains get to {rows['MLP'][1]:,.0f}" in text


def test_descent_divided_by_features(text):
    found = {}
    for line in table("design", "steps to the goal, by the forecast and in training"):
        name, *words = line.rsplit(maxsplit=4)
        found[tuple(name.split(maxsplit=1))] = [float(word.replace(",", "")) for word in words]
    plain, (_, _, diagonal, _), little, more = (
        found["standardised", name] for name in ("none", "diagonal", "features, damping 0.001", "features, damping 0.1")
    )
    white = found["white", "none"][2]
    assert f"the network trains in {more[2]:.0f} steps instead of {plain[2]:.0f}." in text
    assert f"falls from {plain[0]:,.0f} to {more[0]:.0f}, where" in text and more[2] == pytest.approx(more[1], rel=0.1)
    assert "The diagonal changes little." in text and 0.8 < diagonal / plain[2] < 1
    assert f"White inputs alone are good for {white:.0f} steps." in text
    assert f"{plain[2]:.0f} steps become {white:.0f}, or {more[2]:.0f}, on a small perceptron" in text
    assert (
        f"falls to {little[0]:.0f}, and the training takes {little[2]:.0f} steps where the forecast is {little[1]:.0f}"
        in text
    )
    assert "Its best rate is a sixteenth of that of the forecast" in text and little[3] == pytest.approx(
        1 / 16, rel=0.02
    )
    assert "six times as large as with little" in text and more[0] / little[0] == pytest.approx(6, abs=0.5)
    assert all(
        found["white", name][2] < steps for (inputs, name), (_, _, steps, _) in found.items() if inputs != "white"
    )


def test_the_four_trainings_of_the_first_figure(text):
    lines = [line.rsplit(maxsplit=3) for line in table("design", "the four trainings of the figure")]
    found = {name: [float(word.replace(",", "")) for word in words] for name, *words in lines}
    (kappa, low, soon), (other, _, late) = found["torch's default"], found["Kaiming"]
    of_kappa, of_forecast = found["gains: condition number"], found["gains: forecast"]
    assert "has about six times the condition number of the others" in text
    assert all(5.5 < kappa / one[0] < 7.5 for one in (found["Kaiming"], of_kappa, of_forecast))
    assert "and arrives about three times as soon as Kaiming's weights" in text and late / soon == pytest.approx(
        3, abs=0.3
    )
    assert "do not even make $\\kappa$ smaller here" in text and of_kappa[2] == late and of_kappa[0] > other
    assert "The two curves that begin low reach the goal first." in text and max(low, of_forecast[1]) < min(
        found["Kaiming"][1], of_kappa[1]
    )
    assert max(soon, of_forecast[2]) < late


def test_what_orders_initialisations(text):
    lines = [line.rsplit(maxsplit=2) for line in table("design", "rank correlation with the steps, over the twelve")]
    found = {family.removeprefix("gradient descent").strip(): (float(a), float(b)) for family, a, b in lines}
    normalised = found.pop("CNN, BatchNorm")
    assert "in the two families without a normalisation, where $\\kappa$ does not." in text and len(found) == 2
    assert all(kappa < 0.3 and initial > 0.7 for kappa, initial in found.values())
    assert "With batch normalisation it is the other way round." in text and normalised[0] > normalised[1] + 0.2

"""The numbers in the text of "Design" and of its further experiments are those of kept tables and of their outputs."""

from functools import cache
from itertools import product

import numpy as np
import pytest
from gnbook.design.families import FAMILIES, HELD_OUT, build
from gnbook.design.in_batches import HORIZON as LONG
from gnbook.design.initialisations import SEARCHED, UNTUNED
from gnbook.design.trial import CHOICE, ENOUGH, HORIZON, LEAST, arriving, sooner, speedups

from tests.pages.laboratory.stated import states
from tests.pages.pages import kept, named, prose, says

TEXT = f"{prose('notebooks/laboratory/design')} {prose('notebooks/laboratory/design-further')}"
CARD = prose("book/scorecard")
BEST, ZERO, ALL = UNTUNED[0], "last layer zero", {*UNTUNED, *SEARCHED}


@cache
def held(optimizer):
    """Trainings of the families held out, all of which count."""
    rows = [row for row in kept("design-further") if row["held_out"] and row["optimizer"] == optimizer]
    assert arriving(rows) == rows
    return rows


def of_family(rows, family):
    return [row for row in rows if row["family"] == family]


def speed(optimizer, name, than=BEST, family=None, **options):
    """How many times as fast an initialisation is, the geometric mean."""
    rows = held(optimizer)
    return speedups(of_family(rows, family) if family else rows, name, than, **options)[0]


def by_family(optimizer, name, than=BEST):
    return {family: speed(optimizer, name, than, family) for family in HELD_OUT}


def falls(optimizer, name, than=BEST, family=None):
    """Whether a speed would be smaller, all else being equal, if what does not arrive counted as more steps."""
    return speed(optimizer, name, than, family, horizon=HORIZON + 1) < speed(optimizer, name, than, family)


def rises(optimizer, name, than=BEST, family=None):
    return falls(optimizer, than, name, family)


def share(optimizer, name):
    """Return the share of trainings that arrive, in per cent."""
    found = [row["steps"] is not None for row in held(optimizer) if row["initialisation"] == name]
    return 100 * np.mean(found)


def ends(values):
    return min(values), max(values)


def test_what_depends_on_the_horizon_and_what_does_not():
    name = "condition number"
    arrive, default = share("descent", name), share("descent", BEST)
    assert states(TEXT, f"descent {arrive:.0f} % of ... and {default:.0f} % of")
    assert says(CARD, f"trainings {arrive:.0f} % arrive within {HORIZON} steps, ... default {default:.0f} %;")
    assert states(TEXT, f"{share('descent', CHOICE):.0f} % of the ... forecast arrive, and {default:.0f} % of")
    longer = [speed("descent", one, horizon=4_000) for one in (name, CHOICE, ZERO)]
    assert f"4,000 it is {longer[0]:.2f}." in CARD
    assert all(falls("descent", one) for one in (name, CHOICE)) and rises("descent", ZERO)
    (few, many), (ahead, behind) = (sooner(held("descent"), one, BEST) for one in (name, CHOICE))
    assert says(CARD, f"sooner on {few} of 20 networks and later on {many} |")
    assert states(TEXT, f"default on {few} and later on {many}.")
    assert says(CARD, f"sooner on {ahead} networks and later on {behind}.")
    assert states(TEXT, "zero on {} and later on {}.", *sooner(held("descent"), CHOICE, ZERO))
    assert sooner(held("adam"), name, BEST) == (0, 12)
    assert len(held("descent")) == 20 * len(ALL)


def test_what_was_run():
    runs = {(row["family"], row["optimizer"], row["seed"]) for row in kept("design-further")}
    seeds = {"descent": range(1, 6), "adam": range(1, 4)}
    assert runs == {(family, way, seed) for family, way in product(HELD_OUT, seeds) for seed in seeds[way]}
    assert {row["initialisation"] for row in held("descent")} == ALL and (len(UNTUNED), len(SEARCHED)) == (5, 7)
    sizes = [sum(p.numel() for p in build(family, seed=0).parameters()) for family in FAMILIES]
    assert states(TEXT, f"of {round(min(sizes), -2):,} to {round(max(sizes), -2):,} parameters")
    assert states(TEXT, f"`{CHOICE}`; success is {ENOUGH} times")


def test_no_search_beats_the_best_that_is_free():
    assert all(speed(way, name) < 1 for way in ("descent", "adam") for name in SEARCHED)
    value, low, high = speedups(held("descent"), ZERO, BEST)
    assert low < 1 < value < high


def test_the_choice_is_no_success():
    value, low, high = speedups(held("descent"), CHOICE, BEST)
    assert states(TEXT, f"reach at most {value:.2f} times ... where {ENOUGH} times")
    assert f"either, at most {value:.2f} [{low:.2f}, {high:.2f}], but" in CARD
    assert value < ENOUGH and low < 1 < high and speed("descent", CHOICE, ZERO) < 1
    over_kaiming = speed("descent", CHOICE, "Kaiming")
    assert states(TEXT, f"are at least {over_kaiming:.2f} times")
    assert all(rises("descent", name, "Kaiming") for name in (CHOICE, BEST, ZERO))


def test_the_condition_number_and_gradinit():
    kappa, with_adam = (speed(way, "condition number") for way in ("descent", "adam"))
    assert states(TEXT, f"at most {kappa:.2f} times ... at most {with_adam:.2f} times")
    assert all(falls(way, "condition number") for way in ("descent", "adam"))
    other = speed("descent", "GradInit")
    assert states(TEXT, f"GradInit, reaches {other:.2f}.") and other > speed("descent", "MetaInit")
    assert not falls("descent", "GradInit") and not rises("descent", "GradInit")
    assert f"at {kappa:.2f} times" in CARD and f"so {kappa:.2f} is a bound" in CARD
    assert f"has at most {with_adam:.2f}," in CARD


def test_where_it_is_ahead_and_where_behind():
    of = by_family("descent", CHOICE)
    assert states(TEXT, f"{of['deep CNN']:.2f} times ... CNN, {of['CNN, BatchNorm']:.2f} times")
    assert 1 / of["funnel, leaky ReLU"] == pytest.approx(5, abs=0.4)
    assert falls("descent", CHOICE, family="funnel, leaky ReLU")
    narrow = of_family(held("descent"), "deep and narrow")
    arrived = [row["initialisation"] for row in narrow if row["steps"] is not None]
    assert states(TEXT, f"{len(arrived)} of {len(narrow)} trainings arrive within {HORIZON} steps,")
    assert LEAST <= len(arrived) / len(narrow) < LEAST + 0.02


def test_what_searches_cost():
    costs = [row["search_seconds"] / row["step_seconds"] for row in held("descent") if row["search_seconds"]]
    assert states(TEXT, f"as {round(min(costs), -1):.0f} to {round(max(costs), -2):,.0f} of")
    assert all(speed("descent", name, charged=True) < 0.4 for name in SEARCHED)


def test_all_initialisations_on_all_networks():
    """The loss says how large weights should be, but for ResNets with cross-entropy and Adam."""
    found = {way: named("laboratory/design", f"{way}: speed over", 2) for way in ("Adam", "gradient descent")}
    speeds = {
        (way, *key): [None if cell is None else float(str(cell).lstrip("≤≥ ")) for cell in row]
        for way, rows in found.items()
        for key, row in rows.items()
    }
    assert len(speeds) == 16
    for (way, loss, networks), (kaiming, orthogonal, half, *_, lsuv, zero) in speeds.items():
        assert (lsuv is None) == (zero is None) == (networks in ("ResNets", "transformers"))
        if loss == "squared error":
            assert max(kaiming, orthogonal, lsuv or 0) < 1 and half < 1.05
            assert zero is None or (zero > 1) == (way == "Adam")
        elif (way, networks) != ("Adam", "ResNets"):
            assert orthogonal > 1.2 and orthogonal > half
    _, orthogonal, half, *others = speeds["Adam", "cross-entropy", "ResNets"]
    assert states(TEXT, "have {:.2f} times ... ones {:.2f} times", half, orthogonal) and max(others[:2]) < 1 < half


def test_descent_divided_by_features():
    found = named("laboratory/design-further", "steps to the goal, by the forecast and in training; its rate", 3)
    assert len(found) == 12
    little, more = "features, damping 0.001", "features, damping 0.1"
    bare, small, best = (found[BEST, "standardised", name] for name in ("none", little, more))
    diagonal, white = found[BEST, "standardised", "diagonal"][2], found[BEST, "white", "none"][2]
    said = "{:.0f} steps become {:.0f}. ... need {:.0f} steps."
    assert states(TEXT, said, bare[2], best[2], white) and diagonal > bare[2] > white
    assert states(TEXT, f"in {best[2]:.0f} steps instead of {bare[2]:.0f}.")
    assert states(TEXT, f"from {bare[0]:,.0f} to {best[0]:.0f}.") and states(TEXT, f"worse, {diagonal:.0f}.")
    kaiming, divided = (found["Kaiming", "standardised", name] for name in ("none", more))
    assert states(TEXT, f"make {divided[2]:.0f} steps of {kaiming[2]:.0f}.")
    assert states(TEXT, f"from {kaiming[0]:,.0f} to {divided[0]:.0f},")
    assert states(TEXT, "to {:.0f}, ... {:.0f} steps ... is {:.0f}.", small[0], small[2], small[1])


def test_the_four_trainings_of_the_first_figure():
    found = named("laboratory/design", "the four trainings of the figure")
    (kappa, _, soon), (other, _, late) = found[BEST], found["Kaiming"]
    of_kappa, of_forecast = found["gains: condition number"], found["gains: forecast"]
    assert {round(kappa / one) for one in (other, of_kappa[0], of_forecast[0])} == {6, 7}
    assert 3 < late / soon < 3.6 and of_kappa[2] == late > of_forecast[2] and of_kappa[0] > other


def test_what_orders_initialisations():
    found = named("laboratory/design-further", "rank correlation with the steps, over the twelve", 2)
    kappa, loss = found["gradient descent", "CNN, BatchNorm"]
    assert kappa > loss + 0.2
    adam = {family: row for (way, family), row in found.items() if way == "Adam"}
    assert says(TEXT, "{:.2f} to {:.2f}, and", *ends([loss for _, loss in adam.values()])) and len(adam) == 4
    three = [kappa for family, (kappa, _) in adam.items() if family != "deep and narrow"]
    assert says(TEXT, "between {:.2f} and {:.2f} in three families", *ends(three))
    assert states(TEXT, f"count as {HORIZON} steps")


FREE = UNTUNED[1:]


def in_batches(loss, optimizer):
    rows = [row for row in kept("design-further-in-batches") if (row["loss"], row["optimizer"]) == (loss, optimizer)]
    assert len(rows) == 12 * 6 and {row["family"] for row in rows} == {*HELD_OUT}
    return rows


def long_speeds(rows, names=(*FREE, CHOICE)):
    return {name: speedups(rows, name, BEST, horizon=LONG) for name in names}


def test_in_batches_with_the_squared_error():
    descent, adam = (long_speeds(in_batches("mse", way)) for way in ("descent", "adam"))
    with_entropy = speedups(in_batches("cross_entropy", "adam"), ZERO, BEST, horizon=LONG)
    said = "{:.2f} times ... error, {:.2f} times"
    assert states(TEXT, said, adam[ZERO][0], with_entropy[0]) and adam[ZERO][1] > 1 < with_entropy[1]
    assert states(TEXT, f"| {adam[ZERO][0]:.2f} |") and states(TEXT, f"has {adam[ZERO][0]:.2f} times")
    assert [name for name, found in adam.items() if found[0] > 1] == [ZERO]
    late = [[row["steps"] for row in in_batches("mse", "descent") if row["initialisation"] == n] for n in FREE[:3]]
    assert states(TEXT, f"their {len(late[0])} trainings") and late == [[None] * 12] * 3
    assert descent[ZERO][1] < 1 < descent[ZERO][2] and all(descent[name][2] < 1 for name in FREE[:3])


def test_what_is_classified_correctly_in_batches():
    rows = in_batches("mse", "adam")
    zero, best = (
        np.mean([row["accuracy"] for row in rows if row["initialisation"] == name and row["steps"]])
        for name in (ZERO, BEST)
    )
    assert states(TEXT, f"classifies {100 * zero:.0f} % ... default {100 * best:.0f} %")


def test_in_batches_with_cross_entropy():
    rows = [in_batches("cross_entropy", way) for way in ("descent", "adam")]
    descent, adam = ([found[0] for found in long_speeds(some, FREE).values()] for some in rows)
    said = "have at least {:.2f} to {:.2f} times ... and {:.2f} to {:.2f} with"
    assert states(TEXT, said, *ends(descent), *ends(adam)) and min(descent + adam) > 1
    assert states(TEXT, "| at least {:.2f} to {:.2f} |".format(*ends(descent)))
    assert states(TEXT, "| {:.2f} to {:.2f} |".format(*ends(adam)))
    deep = [found[0] for found in long_speeds(of_family(rows[1], "deep CNN"), FREE).values()]
    assert {*map(round, deep)} == {2}

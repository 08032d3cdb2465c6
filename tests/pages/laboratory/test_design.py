"""The findings of "Design" and of its further experiments, by kept tables and their outputs."""

from functools import cache

import numpy as np
from gnbook.design.families import HELD_OUT
from gnbook.design.in_batches import HORIZON as LONG
from gnbook.design.initialisations import SEARCHED, UNTUNED
from gnbook.design.trial import CHOICE, ENOUGH, HORIZON, arriving, sooner, speedups  # noqa: F401 (the scorecard has it)

from tests.pages.pages import kept, named

BEST, ZERO = UNTUNED[0], "last layer zero"


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


def falls(optimizer, name, than=BEST, family=None):
    """Whether a speed would be smaller, all else being equal, if what does not arrive counted as more steps."""
    return speed(optimizer, name, than, family, horizon=HORIZON + 1) < speed(optimizer, name, than, family)


def rises(optimizer, name, than=BEST, family=None):
    return falls(optimizer, than, name, family)


def share(optimizer, name):
    """Return the share of trainings that arrive, in per cent."""
    found = [row["steps"] is not None for row in held(optimizer) if row["initialisation"] == name]
    return 100 * np.mean(found)


def narrow():
    """Whether each training of `deep and narrow` arrives."""
    return [row["steps"] is not None for row in of_family(held("descent"), "deep and narrow")]


def test_no_search_beats_the_best_that_is_free():
    assert all(speed(way, name) < 1 for way in ("descent", "adam") for name in SEARCHED)
    value, low, high = speedups(held("descent"), ZERO, BEST)
    assert low < 1 < value < high


def test_the_choice_is_no_success():
    value, low, high = speedups(held("descent"), CHOICE, BEST)
    assert value < ENOUGH and low < 1 < high and speed("descent", CHOICE, ZERO) < 1
    assert all(rises("descent", name, "Kaiming") for name in (CHOICE, BEST, ZERO))


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
    assert max(others[:2]) < 1 < half


def test_what_orders_initialisations():
    found = named("laboratory/design-further", "rank correlation with the steps, over the twelve", 2)
    kappa, loss = found["gradient descent", "CNN, BatchNorm"]
    assert kappa > loss + 0.2
    assert all(loss > kappa for (way, _), (kappa, loss) in found.items() if way == "Adam")


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
    assert adam[ZERO][1] > 1 < with_entropy[1]
    assert [name for name, found in adam.items() if found[0] > 1] == [ZERO]
    late = [[row["steps"] for row in in_batches("mse", "descent") if row["initialisation"] == n] for n in FREE[:3]]
    assert late == [[None] * 12] * 3
    assert descent[ZERO][1] < 1 < descent[ZERO][2] and all(descent[name][2] < 1 for name in FREE[:3])


def test_in_batches_with_cross_entropy():
    rows = [in_batches("cross_entropy", way) for way in ("descent", "adam")]
    descent, adam = ([found[0] for found in long_speeds(some, FREE).values()] for some in rows)
    assert min(descent + adam) > 1
    deep = [found[0] for found in long_speeds(of_family(rows[1], "deep CNN"), FREE).values()]
    assert {*map(round, deep)} == {2}

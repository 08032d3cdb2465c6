"""The findings of "Design" and of its further experiments, by kept tables and their outputs."""

from functools import cache

import numpy as np
from gnbook.design.families import HELD_OUT
from gnbook.design.in_batches import HORIZON as LONG
from gnbook.design.initialisations import SEARCHED, UNTUNED
from gnbook.design.trial import CHOICE, ENOUGH, HORIZON, arriving, sooner, speedups  # noqa: F401 (the scorecard)

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


def test_all_initialisations_on_all_networks():
    """The loss says how large weights should be, but for ResNets with cross-entropy and Adam."""
    found = {way: named("laboratory/design", f"{way}: speed over", 2) for way in ("Adam", "gradient descent")}
    speeds = {
        (way, *key): [None if cell is None else float(str(cell).lstrip("≤≥ ")) for cell in row]
        for way, rows in found.items()
        for key, row in rows.items()
    }
    for (way, loss, networks), (kaiming, orthogonal, half, *_, lsuv, zero) in speeds.items():
        if loss == "squared error":
            assert max(kaiming, orthogonal, lsuv or 0) < 1 and half < 1.05
            assert zero is None or (zero > 1) == (way == "Adam")
        elif (way, networks) != ("Adam", "ResNets"):
            assert orthogonal > max(1.2, half)
    _, orthogonal, half, *others = speeds["Adam", "cross-entropy", "ResNets"]
    assert max(others[:2]) < 1 < half


def test_in_batches_a_last_layer_of_zeros_is_sooner_with_adam_and_in_the_median_no_other():
    def speeds(**of):
        rows = [row for row in kept("design-further-in-batches") if of.items() <= row.items()]
        assert len(rows) == 12 * 6 and {row["family"] for row in rows} == {*HELD_OUT}
        return {name: speedups(rows, name, BEST, horizon=LONG) for name in (*UNTUNED[1:], CHOICE)}

    adam, with_entropy = (speeds(loss=loss, optimizer="adam") for loss in ("mse", "cross_entropy"))
    assert [name for name, found in adam.items() if found[0] > 1] == [ZERO]
    assert min(adam[ZERO][1], with_entropy[ZERO][1]) > 1
    descent = speeds(loss="mse", optimizer="descent")
    assert descent[ZERO][1] < 1 < descent[ZERO][2] and all(descent[name][2] < 1 for name in UNTUNED[1:4])

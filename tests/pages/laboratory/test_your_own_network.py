"""The findings of "Condition a network of your own" and of its further experiments, by their tables and kept ones."""

import math
from functools import cache
from statistics import median

from gnbook import results
from gnbook.your_own_network.trial import first_tries

from tests.pages.pages import kept


def firsts(over):
    """First suggestions whose foretold factor is above two, or not."""
    return [one for one in first_tries(kept("your-own-network")) if (one["of_adam"] > 2) == over]


def gains(change):
    """How many times sooner trainings with Adam arrive after a change, by seed, network and fault."""
    return {
        (row["seed"], row["network"], row["fault"]): (row["before"] or 1000) / row["after"]
        for row in kept("your-own-network")
        if row["change"].startswith(change)
    }


def obvious():
    """Of both changes that need no tool."""
    return [*gains("centre").values(), *gains("rescale").values()]


def standardised(*networks):
    """Of images between 0 and 1, by standardising."""
    return [gain for (_, name, fault), gain in gains("centre").items() if name in networks and fault.endswith(" 1")]


def test_with_adam_what_is_foretold_above_two_is_sooner_but_for_one_network():
    slower = [one for one in firsts(over=True) if one["sooner"] < 1]
    assert {(one["network"], one["fault"]) for one in slower} == {("CNN", "images from 0 to 255")}
    assert sum(one["sooner"] > 1 for one in firsts(over=False)) == 7 == len(firsts(over=False)) - 1


def alarms():
    """By what factor the loss is off the forecast where thirty steps raise the alarm."""
    return [row["off"] for row in kept("your-own-network-further") if row["off"] and row["early"] > 2]


@cache
def middle(*way):
    """The median over seeds of steps; those that never arrive come last."""
    columns = "loss", "optimizer", "family", "initialisation"
    rows = [row for row in kept("what-predicts-training") if row["n"] == 50]
    found = [row["steps_tenth"] for row in rows if tuple(row[column] for column in columns) == way]
    return median(math.inf if steps is None else steps for steps in found)


FAMILIES = sorted({row["family"] for row in results.kept("what-predicts-training")})
RESNETS = {family for family in FAMILIES if "ResNet" in family}


def speeds(optimizer, families):
    """With cross-entropy, how many times as fast orthogonal weights are as torch's default, in order."""
    of = [[middle("cross_entropy", optimizer, f, way) for way in ("default", "orthogonal")] for f in families]
    return sorted(default / orthogonal for default, orthogonal in of)

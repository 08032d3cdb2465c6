"""The findings of "Condition a network of your own" and of its further experiments, by their tables and kept ones."""

import math
from functools import cache
from statistics import median

from gnbook import results
from gnbook.your_own_network.sixty import (
    AT_ITS_RATE,
    ENGINEER,
    FIRST,
    NEAR,
    NEARLY,
    choices,
    false_suggestions,
    of_networks,
    pairs,
)

from tests.pages.pages import kept

OPTIMIZERS = "adam", "sgd"


def sixty(part="held-out"):
    """The rows of the trial on sixty networks, or of a part of them."""
    return [row for row in results.kept("advice-trial") if part in ("all", row["part"])]


def sooner(variant, optimizer, part="held-out"):
    """How many times fewer steps a variant takes than no change, in the median of networks."""
    return median(of_networks(pairs(sixty(part), variant, optimizer)).values())


def not_slower(part="held-out"):
    """The share of first suggestions that take at most a ninth more steps than no change."""
    gains = [gain.value for o in OPTIMIZERS for _, gain in pairs(sixty(part), FIRST, o) if gain.value == gain.value]
    return sum(gain >= NEARLY for gain in gains) / len(gains)


def in_vain(part="held-out"):
    """Suggestions for well-prepared networks that gain no fifth, and reports on these."""
    found = [false_suggestions(sixty(part), optimizer) for optimizer in OPTIMIZERS]
    return sum(len(false) for false, _ in found), sum(asked for _, asked in found)


def near(optimizer, part="held-out"):
    """Choices that are close to the best candidate, and all."""
    ratios = [ratio for _, ratio in choices(sixty(part), optimizer)]
    return sum(ratio <= NEAR for ratio in ratios), len(ratios)


def later(word, part="all"):
    """Loss on samples held out of networks that were changed so, over that with no change, in the median."""
    plain = {(r["network"], r["optimizer"], r["seed"]): r for r in sixty(part) if r["variant"] == "no change"}
    those = [r for r in sixty(part) if r["variant"] in (FIRST, "candidate") and word in (r["what"] or "")]
    pairs_of = [(r, plain[r["network"], r["optimizer"], r["seed"]]) for r in those if r["state"] == "reached"]
    return median(r["held_out_loss"] / p["held_out_loss"] for r, p in pairs_of if r["held_out_loss"])


def test_on_networks_that_were_held_out_the_first_suggestion_is_ahead_of_an_engineer():
    firsts = [row for row in sixty() if row["variant"] == FIRST]
    assert len({row["network"] for row in firsts}) == 20 and not {row["state"] for row in firsts} & {"exploded", "dead"}
    exploded = [row for row in sixty() if row["variant"] == AT_ITS_RATE and row["state"] == "exploded"]
    assert len(exploded) == 1 and 5.5 <= median(row["report_seconds"] for row in firsts) <= 6.5
    assert all(sooner(FIRST, optimizer) > 1.5 * sooner(ENGINEER, optimizer) for optimizer in OPTIMIZERS)
    found, of = map(sum, zip(*map(near, OPTIMIZERS), strict=True))
    assert found >= 0.9 * of and not_slower() == 1 and in_vain()[0] == 0


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

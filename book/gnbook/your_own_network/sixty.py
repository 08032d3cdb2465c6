"""What a trial of advice on sixty networks found, from its rows: speed-ups, choices, false suggestions.

A speed-up is the steps of no change to the goal over those of a variant. Where only one of the two is there within the
steps of a run, the other counts as all of them: a bound, from below where no change is not there. Where neither is
there the speed-up is unknown: left out of medians, and counted.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

STEPS = 200  # of a run at most
PLAIN, ENGINEER, FIRST, CANDIDATE = "no change", "engineer", "first suggestion", "candidate"
AT_ITS_RATE = "first suggestion at its rate"
NEARLY = 0.9  # of the speed of no change: not slower
NEAR = 1.25  # times the steps of the best candidate
GAINS = 1.25  # speed-up of a suggestion that is none of nothing: faster by a fifth

Rows = Sequence[dict[str, Any]]


class SpeedUp(NamedTuple):
    """Steps of no change over those of a variant, and whether it is a bound or unknown."""

    value: float
    kind: str


def speed_up(row: dict[str, Any], plain: dict[str, Any]) -> SpeedUp:
    """Return the speed-up of a variant; no suggestion is no change, what could not be made is unknown."""
    if row["state"] == "none" and row["variant"] != FIRST:
        return SpeedUp(math.nan, "not made")
    if row["state"] == "none":
        row = plain
    if row["state"] in ("exploded", "dead") and row is not plain:
        return SpeedUp((plain["steps"] or math.nan) / STEPS, row["state"])
    before, after = plain["steps"], row["steps"]
    if before is None and after is None:
        return SpeedUp(math.nan, "neither is there")
    kind = "from below" if before is None else "from above" if after is None else "exact"
    return SpeedUp((before or STEPS) / (after or STEPS), kind)


def pairs(rows: Rows, variant: str, optimizer: str) -> list[tuple[dict[str, Any], SpeedUp]]:
    """Return the rows of a variant with their speed-ups."""
    plain = {(r["network"], r["seed"]): r for r in chosen(rows, PLAIN, optimizer)}
    return [(r, speed_up(r, plain[r["network"], r["seed"]])) for r in chosen(rows, variant, optimizer)]


def of_networks(found: Iterable[tuple[dict[str, Any], SpeedUp]]) -> dict[str, float]:
    """Return the median speed-up of each network over its seeds, of those that are known."""
    by: dict[str, list[float]] = defaultdict(list)
    for row, gain in found:
        if not math.isnan(gain.value):
            by[row["network"]].append(gain.value)
    return {network: median(values) for network, values in by.items()}


def choices(rows: Rows, optimizer: str) -> list[tuple[str, float]]:
    """Return for each network the steps of what was chosen over those of the best candidate, where any is there.

    Candidates are all that the report has tried, and no change; what is chosen is the first suggestion, or no change.
    The rates of the first suggestion are those of the grid, and its own.
    """
    seed = min((r["seed"] for r in rows if r.get("seed") is not None), default=0)

    def least(*variants: str) -> dict[str, float]:
        steps: dict[str, float] = {}
        for row in rows:
            if row.get("variant") in variants and (row["optimizer"], row["seed"]) == (optimizer, seed):
                steps[row["network"]] = min(steps.get(row["network"], math.inf), row.get("steps") or math.inf)
        return steps

    best, plain, first = least(CANDIDATE, PLAIN), least(PLAIN), least(FIRST, AT_ITS_RATE)
    silent = {
        row["network"] for row in chosen(rows, FIRST, optimizer) if row["seed"] == seed and row["state"] == "none"
    }
    taken = {network: plain[network] if network in silent else steps for network, steps in first.items()}
    return [(network, steps / best[network]) for network, steps in taken.items() if best[network] < math.inf]


def false_suggestions(rows: Rows, optimizer: str) -> tuple[list[tuple[str, int, str]], int]:
    """Return the suggestions for well-prepared networks that are not faster by a fifth, and how many were asked."""
    asked = [(row, gain) for row, gain in pairs(rows, FIRST, optimizer) if row["prepared"]]
    false = [
        (row["network"], row["seed"], row["what"])
        for row, gain in asked
        if row["state"] != "none" and not gain.value >= GAINS
    ]
    return false, len(asked)


def chosen(rows: Rows, variant: str, optimizer: str) -> Rows:
    """Return the rows of a variant under an optimiser."""
    return [row for row in rows if row.get("variant") == variant and row["optimizer"] == optimizer]

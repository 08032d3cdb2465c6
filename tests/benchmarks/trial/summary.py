"""The tables of the trial: what must be reached, for the networks of one half.

A speed-up is the steps of no change to the goal over those of a variant. Where only one of the two is there within the
steps of a run, the other counts as all of them: a bound, from below where no change is not there. Where neither is
there the speed-up is unknown: left out of medians, and counted.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from tests.benchmarks.trial.one import AT_ITS_RATE, CANDIDATE, ENGINEER, FIRST, OPTIMIZERS, PLAIN
from tests.benchmarks.trial.training import STEPS

NEARLY = 0.9  # of the speed of no change: not slower
NEAR = 1.25  # times the steps of the best candidate
GAINS = 1.25  # speed-up of a suggestion that is none of nothing: faster by a fifth

COUNTED = "networks", "median", "least", ">= 0.9", "exploded", "dead", "unknown", "held out"

Rows = Sequence[dict]


class SpeedUp(NamedTuple):
    """Steps of no change over those of a variant, and whether it is a bound or unknown."""

    value: float
    kind: str


def speed_up(row: dict, plain: dict) -> SpeedUp:
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


def pairs(rows: Rows, variant: str, optimizer: str) -> list[tuple[dict, SpeedUp]]:
    """Return the rows of a variant with their speed-ups."""
    plain = {(r["network"], r["seed"]): r for r in _of(rows, PLAIN, optimizer)}
    return [(r, speed_up(r, plain[r["network"], r["seed"]])) for r in _of(rows, variant, optimizer)]


def of_networks(found: Iterable[tuple[dict, SpeedUp]]) -> dict[str, float]:
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
    seed = min((r["seed"] for r in rows if "seed" in r), default=0)

    def least(*variants: str) -> dict[str, float]:
        steps: dict[str, float] = {}
        for row in rows:
            if row.get("variant") in variants and (row["optimizer"], row["seed"]) == (optimizer, seed):
                steps[row["network"]] = min(steps.get(row["network"], math.inf), row.get("steps") or math.inf)
        return steps

    best, plain, first = least(CANDIDATE, PLAIN), least(PLAIN), least(FIRST, AT_ITS_RATE)
    silent = {row["network"] for row in _of(rows, FIRST, optimizer) if row["seed"] == seed and row["state"] == "none"}
    chosen = {network: plain[network] if network in silent else steps for network, steps in first.items()}
    return [(network, steps / best[network]) for network, steps in chosen.items() if best[network] < math.inf]


def false_suggestions(rows: Rows, optimizer: str) -> tuple[list[tuple[str, int, str]], int]:
    """Return the suggestions for well-prepared networks that are not faster by a fifth, and how many were asked."""
    asked = [(row, gain) for row, gain in pairs(rows, FIRST, optimizer) if row["prepared"]]
    false = [
        (row["network"], row["seed"], row["what"])
        for row, gain in asked
        if row["state"] != "none" and not gain.value >= GAINS
    ]
    return false, len(asked)


def lines(rows: Rows) -> list[str]:
    """Return the summary of the rows of a half as it is printed."""
    failed = [f"{row['network']}: {row['why']}" for row in rows if "variant" not in row]
    rows = [row for row in rows if "variant" in row]
    if not rows:
        return failed or ["no rows"]
    variants = [*dict.fromkeys(row["variant"] for row in rows if row["variant"] not in (PLAIN, CANDIDATE))]
    out = [
        f"{len({r['network'] for r in rows})} networks; speed-up is steps of no change over steps, of {STEPS} at most"
    ]
    head = f"{'variant':<30}" + "".join(f"{name:>9}" for name in COUNTED)
    for optimizer in OPTIMIZERS:
        out += ["", optimizer, head]
        out += [_line(rows, variant, optimizer) for variant in variants if _of(rows, variant, optimizer)]
        near = choices(rows, optimizer) if _of(rows, CANDIDATE, optimizer) else []
        within = [name for name, ratio in near if ratio <= NEAR]
        out.append(f"choice within {NEAR} of the best candidate: {len(within)} of {len(near)}")
        out += [f"  not: {name}, {ratio:.3g} times the steps" for name, ratio in near if ratio > NEAR]
        false, asked = false_suggestions(rows, optimizer)
        out.append(f"false suggestions for well-prepared networks: {len(false)} of {asked} reports")
        out += [f"  {name}, seed {seed}: {what}" for name, seed, what in false]
    cost = [r["report_seconds"] / r["epoch_seconds"] for r in rows if r.get("report_seconds")]
    if cost:
        seconds = [r["report_seconds"] for r in rows if r.get("report_seconds")]
        epochs = f"{median(cost):.3g} epochs of 1,000 samples (at most {max(cost):.3g})"
        out += ["", f"a report: {median(seconds):.2g} s (at most {max(seconds):.2g}), {epochs}"]
    refused = [r for r in rows if r["variant"] == FIRST and r["why"]]
    out += [f"no report: {r['network']}, {r['optimizer']}, seed {r['seed']}: {r['why']}" for r in refused]
    return out + failed


def by_network(rows: Rows, optimizer: str) -> list[str]:
    """Return a line a network: median speed-ups of the engineer and of the first suggestion, and what it is."""
    rows = [row for row in rows if "variant" in row]
    engineer, first = (of_networks(pairs(rows, variant, optimizer)) for variant in (ENGINEER, FIRST))
    out = [f"{'network, ' + optimizer:<32}{'steps':>6}{'engineer':>9}{'first':>7}  suggestions of each seed"]
    for name in dict.fromkeys(row["network"] for row in rows):
        plain = [r["steps"] for r in _of(rows, PLAIN, optimizer) if r["network"] == name]
        what = [r["what"] or r["why"] or "-" for r in _of(rows, FIRST, optimizer) if r["network"] == name]
        steps = sorted(plain, key=lambda s: s or math.inf)[len(plain) // 2]
        shown = [_number(each.get(name)) for each in (engineer, first)]
        out.append(f"{name:<32}{steps or '-':>6}{shown[0]:>9}{shown[1]:>7}  {' | '.join(dict.fromkeys(what))}")
    return out


def _line(rows: Rows, variant: str, optimizer: str) -> str:
    found = pairs(rows, variant, optimizer)
    medians = [*of_networks(found).values()]
    known = [gain.value for _, gain in found if not math.isnan(gain.value)]
    states = [row["state"] for row, _ in found]
    slow = sum(value < NEARLY for value in known)
    good = f"{1 - slow / len(known):.0%}" if known else "-"
    plain = {(r["network"], r["seed"]): r for r in _of(rows, PLAIN, optimizer)}
    held = [
        row["held_out_loss"] / plain[row["network"], row["seed"]]["held_out_loss"]
        for row, _ in found
        if row.get("held_out_loss") and plain[row["network"], row["seed"]].get("held_out_loss")
    ]
    one, least = (_number(f(medians) if medians else None) for f in (median, min))
    counts = [states.count("exploded"), states.count("dead"), len(found) - len(known)]
    cells = [len(medians), one, least, good, *counts, _number(median(held) if held else None)]
    return f"{variant:<30}" + "".join(f"{cell:>9}" for cell in cells)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _of(rows: Rows, variant: str, optimizer: str) -> list[dict]:
    return [row for row in rows if row.get("variant") == variant and row["optimizer"] == optimizer]

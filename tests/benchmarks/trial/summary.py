"""The tables of the trial as they are printed, for the networks of one part."""

import math
from statistics import median

from gnbook.your_own_network.sixty import (
    CANDIDATE,
    ENGINEER,
    FIRST,
    NEAR,
    NEARLY,
    PLAIN,
    STEPS,
    Rows,
    choices,
    chosen,
    false_suggestions,
    of_networks,
    pairs,
)

from tests.benchmarks.trial.one import OPTIMIZERS

COUNTED = "networks", "median", "least", ">= 0.9", "exploded", "dead", "unknown", "held out"


def lines(rows: Rows) -> list[str]:
    """Return the summary of the rows of a part as it is printed."""
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
        out += [_line(rows, variant, optimizer) for variant in variants if chosen(rows, variant, optimizer)]
        near = choices(rows, optimizer) if chosen(rows, CANDIDATE, optimizer) else []
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
        plain = [r["steps"] for r in chosen(rows, PLAIN, optimizer) if r["network"] == name]
        what = [r["what"] or r["why"] or "-" for r in chosen(rows, FIRST, optimizer) if r["network"] == name]
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
    plain = {(r["network"], r["seed"]): r for r in chosen(rows, PLAIN, optimizer)}
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

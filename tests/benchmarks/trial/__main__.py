"""The trial of the advice: `python -m tests.benchmarks.trial --part development` runs what has not been run.

The libraries of its networks are those of `libraries.txt`: `pip install --requirement` it, with `constraints.txt`. The
held-out networks are looked at once, at the end. With `--keep` the rows of a part go into the kept table.
"""

import argparse
import csv
import sys
from collections.abc import Iterable, Mapping

import torch
from tqdm import tqdm

from tests.benchmarks.peers.runner import ROOT, write_table
from tests.benchmarks.trial import libraries
from tests.benchmarks.trial.cases import Case
from tests.benchmarks.trial.one import OPTIMIZERS, SEEDS, epoch_seconds
from tests.benchmarks.trial.runner import BUDGET, LIMIT, Trial
from tests.benchmarks.trial.summary import by_network, lines

KEPT = ROOT / "book" / "results" / "advice-trial.csv"
COLUMNS = (
    *("network", "part", "library", "kind", "task", "prepared", "versions", "parameters", "samples", "variant", "what"),
    *("seed", "optimizer", "rate", "goal", "first_loss", "steps", "state", "last_loss", "held_out_loss", "searched"),
    *("report_seconds", "epoch_seconds", "making_seconds", "why", "run_name"),
    *(f"run_{name}" for name in ("device", "revision", "python", "gnlib", "torch", "numpy", "scipy", "threads")),
    *("run_budget", "run_seconds", "run_finished"),
)
CANDIDATES, SEARCHES = 15, 3  # that a report has, and peers that search a grid
STEPS_OF = {"adam": 300, "sgd": 450}  # of a search over the grid, as the first networks took, and a quarter more


def seconds_of(case: Case) -> float:
    """Return a forecast of the CPU seconds of a network, from the time of a step."""
    data, searches = case.data(), 3 * len(SEEDS) + CANDIDATES + SEARCHES
    step = epoch_seconds(case, case.module(0), data) * len(data.y) / 1000
    return step * searches * sum(STEPS_OF.values()) + len(SEEDS) * len(OPTIMIZERS) * BUDGET / 2


def main(arguments: list[str]) -> None:
    """Forecast, run, print and write."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.trial", description=__doc__)
    parser.add_argument("--part", choices=["development", "held-out"], default="development")
    parser.add_argument("--networks", nargs="*", help="some of the part alone")
    parser.add_argument("--jobs", type=int, default=1, help="networks at the same time")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of a network")
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds of a report, by the wall")
    parser.add_argument("--quick", action="store_true", help="one seed, no peers, no candidates but the first")
    parser.add_argument("--forecast", action="store_true", help="the seconds of all, and nothing else")
    parser.add_argument("--summary", action="store_true", help="of what is there; run nothing")
    parser.add_argument("--keep", action="store_true", help=f"write {KEPT.relative_to(ROOT)}, with this part")
    options = parser.parse_args(arguments)
    libraries.declare()
    from tests.benchmarks.trial.networks import CASES, PARTS

    folder = ROOT / "_build" / ("trial-quick" if options.quick else "trial")
    trial = Trial(folder, limit=options.limit, budget=options.budget, quick=options.quick)
    names = [name for name in PARTS[options.part] if not options.networks or name in options.networks]
    torch.set_num_threads(1)
    if options.forecast:
        print(f"all {len(CASES)} networks: {sum(map(seconds_of, CASES.values())):,.0f} s of one core")
        return
    if not options.summary and (missing := trial.missing(names)):
        forecast = {name: seconds_of(CASES[name]) for name in missing}
        print(f"{len(missing)} networks to run, {sum(forecast.values()):,.0f} s of one core but for a quick look")
        shortest_first = sorted(missing, key=forecast.__getitem__)
        bar = tqdm(trial.run(shortest_first, options.jobs), total=len(missing))
        for network in bar:
            bar.set_postfix_str(network)
    rows = trial.rows(names)
    print(*lines(rows), *("\n".join(["", *by_network(rows, optimizer)]) for optimizer in OPTIMIZERS), sep="\n")
    if options.keep and not options.quick:
        keep(trial, PARTS, options.part)


def keep(trial: Trial, parts: Mapping[str, Iterable[str]], part: str) -> None:
    """Put the rows of a part, all of one revision without changes, into the kept table."""
    rows = trial.rows([*parts[part]])
    missing, revisions = trial.missing([*parts[part]]), {str(row["run_revision"]) for row in rows}
    if missing or len(revisions) != 1 or any("+" in revision or revision == "None" for revision in revisions):
        sys.exit(f"Nothing is kept: {len(missing)} networks are missing, revisions are {sorted(revisions)}.")
    with KEPT.open(newline="", encoding="utf8") as file:
        rows += [row for row in csv.DictReader(file) if row["network"] not in {*parts[part]}]
    part_of = {network: name for name, networks in parts.items() for network in networks}
    rows = [{**row, "part": part_of[row["network"]], "run_name": row["network"]} for row in rows]
    write_table(KEPT, COLUMNS, rows)


if __name__ == "__main__":
    main(sys.argv[1:])

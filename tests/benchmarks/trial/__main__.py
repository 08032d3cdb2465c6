"""The trial of the advice: `python -m tests.benchmarks.trial --part development` runs what has not been run.

The libraries of its networks are those of `libraries.txt`: `pip install --requirement` it, with `constraints.txt`. The
held-out networks are looked at once, at the end. With `--keep` the rows of a part go into the kept table.
"""

import argparse
import csv
import sys
from collections.abc import Iterable, Mapping

from tqdm import tqdm

from tests.benchmarks.peers.runner import ROOT, write_table
from tests.benchmarks.trial import libraries
from tests.benchmarks.trial.one import OPTIMIZERS
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


def main(arguments: list[str]) -> None:
    """Forecast, run, print and write."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.trial", description=__doc__)
    parser.add_argument("--part", choices=["development", "held-out"], default="development")
    parser.add_argument("--networks", nargs="*", help="some of the part alone")
    parser.add_argument("--jobs", type=int, default=1, help="networks at the same time")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of a network")
    parser.add_argument("--budget", type=float, default=BUDGET, help="seconds of a report, by the wall")
    parser.add_argument("--summary", action="store_true", help="of what is there; run nothing")
    parser.add_argument("--keep", action="store_true", help=f"write {KEPT.relative_to(ROOT)}, with this part")
    options = parser.parse_args(arguments)
    libraries.declare()
    from tests.benchmarks.trial.networks import PARTS

    trial = Trial(ROOT / "_build" / "trial", limit=options.limit, budget=options.budget)
    names = [name for name in PARTS[options.part] if not options.networks or name in options.networks]
    if not options.summary and (missing := trial.missing(names)):
        bar = tqdm(trial.run(missing, options.jobs), total=len(missing))
        for network in bar:
            bar.set_postfix_str(network)
    rows = trial.rows(names)
    print(*lines(rows), *("\n".join(["", *by_network(rows, optimizer)]) for optimizer in OPTIMIZERS), sep="\n")
    if options.keep:
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

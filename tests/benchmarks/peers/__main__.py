"""Race all peers: `python -m tests.benchmarks.peers` installs them below _build, and runs what has not been run.

The table is printed, and lies in _build/peers; with `--keep` it becomes the one that the book draws.
"""

import argparse
import sys
from pathlib import Path

from tests.benchmarks.peers.common import TASKS
from tests.benchmarks.peers.networks import CASES, problem_of
from tests.benchmarks.peers.runner import PEERS, ROOT, Race, write_table

KEPT = ROOT / "book" / "results" / "cost-peers.csv"
COLUMNS = (
    *("network", "task", "peer", "versions", "samples", "outputs", "parameters", "dtype", "gradients", "seconds"),
    *("gradient_seconds", "wall_seconds", "first_wall_seconds", "repetitions", "products", "difference", "why"),
    *(f"run_{name}" for name in ("name", "device", "revision", "python", "gnlib", "torch", "numpy", "scipy")),
    *(f"run_{name}" for name in ("threads", "seconds", "finished")),
)
SHOWN = {"network": "<30", "task": "<20", "peer": "<20", "gradients": ">10.4g", "seconds": ">10.3g", "products": ">9"}
SHOWN |= {"difference": ">11.1e", "why": ""}


def write(rows: list[dict], path: Path) -> None:
    """Write the rows, network by network and task by task, so that peers stand beside each other."""
    networks, tasks = list(CASES), list(TASKS)
    rows = sorted(rows, key=lambda row: (networks.index(row["network"]), tasks.index(row["task"])))
    write_table(path, COLUMNS, rows)


def line(row: dict) -> str:
    """Return a row as it is printed; what it lacks is a dash."""

    def cell(name: str, form: str) -> str:
        value = row.get(name)
        return format(value, form) if value is not None else format("-", form.split(".")[0])

    return " ".join(cell(name, form) for name, form in SHOWN.items()).rstrip(" -")


def main(arguments: list[str]) -> None:
    """Install, run, print and write."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.peers", description=__doc__)
    parser.add_argument("--full", action="store_true", help="the large networks too, in half an hour")
    parser.add_argument("--installed", action="store_true", help="only the peers that are there; install nothing")
    parser.add_argument("--keep", action="store_true", help=f"write {KEPT.relative_to(ROOT)}")
    options = parser.parse_args(arguments)
    race, rows = Race(ROOT / "_build" / "peers"), []
    missing = [peer for peer in PEERS if not race.is_installed(peer)]
    if options.installed and missing:
        print(f"Not installed: {', '.join(missing)}. python -m tests.benchmarks.peers installs them, 1 GiB, and races.")
    for peer in [] if options.installed else missing:
        print(f"installing {peer}")
        race.install(peer)
    print(" ".join(format(name, form.split(".")[0]) for name, form in SHOWN.items()))
    networks = [network for network, case in CASES.items() if options.full or not case.full]
    for network in networks:
        problem_of(network).save(race.folder)
    for peer in filter(race.is_installed, PEERS):
        found = race.rows(peer, networks)
        rows += found
        print(*map(line, found), sep="\n", flush=True)
    write(rows, KEPT if options.keep else race.folder / "peers.csv")


if __name__ == "__main__":
    main(sys.argv[1:])

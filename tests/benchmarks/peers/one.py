"""One peer, in a process of its own: `python -m tests.benchmarks.peers.one PEER FOLDER NETWORK...`.

Each network leaves a file of what was found as soon as it is done.
"""

import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from types import ModuleType

import numpy as np

from tests.benchmarks.peers import common
from tests.benchmarks.peers.common import Problem, Unable, load, write_json

NAMES = {"product": "product", "largest eigenvalue": "largest", "Gram matrix": "gram"}


def rows_of(peer: ModuleType, problem: Problem, ours: dict[str, object]) -> tuple[list[dict], dict[str, object]]:
    """Return a row a task, and what was found: what a peer cannot do has a reason in its row, and no seconds."""
    rows, results = [], {}
    for task in common.tasks_of(problem.network):
        dtype = common.TASKS[task]
        row: dict[str, object] = {"task": task, "dtype": np.dtype(dtype).name}
        rows.append(row)
        try:
            if task in getattr(peer, "CANNOT", {}):
                raise Unable(peer.CANNOT[task])
            given = problem.as_dtype(dtype)
            work = getattr(peer, NAMES[task])(given)
            seconds, found = common.measured(peer.gradient(given), work)
            found, products = found if isinstance(found, tuple) else (found, None)  # where the peer counts them
            apart = {"difference": common.difference(found, ours[task])} if task in ours else {}
        except Exception as error:  # whatever it is, the others go on
            row["why"] = common.reason(error)
            continue
        row |= seconds | apart | {"products": products}
        results[task] = found
    return rows, results


def main(peer: str, folder: Path, networks: list[str]) -> None:
    module = import_module(f"tests.benchmarks.peers.{peer}")
    versions = ", ".join(f"{name} {version(name)}" for name in module.PACKAGES)
    if "torch" in sys.modules:
        from tests.benchmarks.peers.networks import plain_attention

        plain_attention()
    for network in networks:
        start, problem = perf_counter(), load(folder, network)
        kept = folder / f"{network}, found.npz"
        ours: dict[str, object] = {}
        if peer != "ours":
            with np.load(kept) as file:
                ours = {task: file[task] for task in file.files}
        rows, found = rows_of(module, problem, ours)
        if peer == "ours":
            np.savez(kept, **found)
        sizes = {"samples": len(problem.x), "outputs": problem.y.size * problem.classes, "parameters": problem.v.size}
        content = {"rows": [{**sizes, "versions": versions} | row for row in rows], "seconds": perf_counter() - start}
        write_json(common.result_of(folder, peer, network), content)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])

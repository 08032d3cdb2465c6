"""The networks one by one, each in its own process with one thread and a limit; what is there is not run again."""

import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path
from time import perf_counter

from tests.benchmarks.peers.common import write_json
from tests.benchmarks.peers.runner import ended, origin

LIMIT = 1200.0  # seconds of a network
BUDGET = 40.0  # seconds of a report, by the wall: more on a machine that has other things to do


class Trial:
    """The processes of the trial, each `python -m MODULE FOLDER NETWORK BUDGET`, and a file for what each found."""

    def __init__(
        self, folder: Path, module: str = "tests.benchmarks.trial.one", limit: float = LIMIT, budget: float = BUDGET
    ) -> None:
        self.folder, self.module, self.limit, self.budget = folder, module, limit, budget

    def missing(self, networks: Sequence[str]) -> list[str]:
        """Return the networks that have no rows yet."""
        return [network for network in networks if not self._path(network).exists()]

    def rows(self, networks: Sequence[str]) -> list[dict]:
        """Return the rows that are there."""
        there = [network for network in networks if self._path(network).exists()]
        return [row for network in there for row in json.loads(self._path(network).read_text())]

    def run(self, networks: Sequence[str], jobs: int = 1) -> Iterator[str]:
        """Run what is missing, and yield each network as it is done."""
        with ThreadPoolExecutor(jobs) as pool:
            waiting = {pool.submit(self._run, network): network for network in self.missing(networks)}
            for done in as_completed(waiting):
                done.result()
                yield waiting[done]

    def _path(self, network: str) -> Path:
        return self.folder / "rows" / f"{network}.json"

    def _run(self, network: str) -> None:
        """Run a network; if the process dies or is not done in time, its row has the reason."""
        start, found = perf_counter(), self.folder / "found" / f"{network}.json"
        found.unlink(missing_ok=True)
        command = [sys.executable, "-W", "ignore", "-m", self.module, str(self.folder), network, str(self.budget)]
        result = {"rows": [{"why": ended(command, self.limit)}], "seconds": perf_counter() - start}
        if found.exists():
            result = json.loads(found.read_text())
        run = origin(result["seconds"], budget=self.budget)
        rows = [{"network": network, "versions": "", **row, **run} for row in result["rows"]]
        for row in rows:
            if "library" in row:
                row["versions"] = f"{row['library']} {version(row['library'])}"
        write_json(self._path(network), rows)

"""Each peer in its own environment and its own process; what is there is not run again."""

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

from gnbook.sweep.provenance import git_revision, versions

from tests.benchmarks.peers.common import result_of, tasks_of, write_json

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PEERS = ("ours", "by_hand", "curvlinops", "hessian_eigenthings", "nngeometry", "matfree", "neural_tangents")
ONE_THREAD = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "OMP_WAIT_POLICY": "passive",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
}
PATIENCE = 1800  # seconds that a process may take


def ended(command: Sequence[str], patience: float, packages: Path | None = None) -> str:
    """Run a command with one thread and the code of this tree, and return why it did not come to an end, if it did not.

    Packages of a folder go before those of the book.
    """
    paths = [str(packages or ""), str(ROOT), str(ROOT / "book"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=patience)
    except subprocess.TimeoutExpired:
        return f"The process was not done after {patience:g} seconds."
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return f"The process ended with code {done.returncode}: {last}"[:200]


def origin(seconds: float, **more: object) -> dict[str, object]:
    """Return the columns that say where a row comes from."""
    found = {
        **{"device": "cpu", "revision": git_revision(HERE), **versions(), "threads": 1, "seconds": round(seconds, 3)},
        **{"finished": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), **more},
    }
    return {f"run_{key}": value for key, value in found.items()}


def write_table(path: Path, columns: Sequence[str], rows: Sequence[dict]) -> None:
    """Write rows as a kept table."""
    with path.open("w", newline="", encoding="utf8") as file:
        table = csv.DictWriter(file, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


class Race:
    """The processes of a race, and a file for what each of them found.

    In a folder lie the environments, the data and the results; the pinned packages of a peer lie in `PEER.txt`, and a
    peer without has all it needs. A peer is run as `python -m MODULE PEER FOLDER NETWORK...`.
    """

    def __init__(self, folder: Path, pins: Path = HERE, module: str = "tests.benchmarks.peers.one") -> None:
        self.folder, self.pinned, self.module = folder, pins, module

    def pins(self, peer: str) -> str:
        """Return the packages of a peer, with their versions."""
        path = self.pinned / f"{peer}.txt"
        return path.read_text() if path.exists() else ""

    def environment(self, peer: str) -> Path:
        """Return the folder of the packages of a peer, which go before those of the book."""
        return self.folder / "installed" / peer

    def is_installed(self, peer: str) -> bool:
        """Say whether a peer has its packages, in the versions that are pinned now."""
        done = self.environment(peer) / "pins.txt"
        return not self.pins(peer) or (done.exists() and done.read_text() == self.pins(peer))

    def install(self, peer: str) -> None:
        """Install the packages of a peer."""
        target = str(self.environment(peer))
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", target]
        subprocess.run([*pip, "--requirement", str(self.pinned / f"{peer}.txt")], check=True)
        # neural-tangents installs its tests beside itself, where they hide those of the book.
        shutil.rmtree(self.environment(peer) / "tests", ignore_errors=True)
        (self.environment(peer) / "pins.txt").write_text(self.pins(peer))

    def rows(self, peer: str, networks: Sequence[str], patience: float = PATIENCE) -> list[dict]:
        """Return the rows of a peer on some networks, from files of earlier runs or of a process that makes them.

        If the process dies, or is not done in time, the network that it was at has a row a task with the reason, and
        another one goes on with the rest.
        """
        while missing := [network for network in networks if not self._path(peer, network).exists()]:
            start = perf_counter()
            why = self._process(peer, missing, patience)
            done = [network for network in missing if result_of(self.folder, peer, network).exists()]
            for network in done:
                self._keep(peer, network, json.loads(result_of(self.folder, peer, network).read_text()))
            if rest := missing[len(done) :]:
                rows = [{"task": task, "why": why} for task in tasks_of(rest[0])]
                self._keep(peer, rest[0], {"rows": rows, "seconds": perf_counter() - start})
        return [row for network in networks for row in json.loads(self._path(peer, network).read_text())]

    def _path(self, peer: str, network: str) -> Path:
        return self.folder / "rows" / f"{network}, {peer}.json"

    def _process(self, peer: str, networks: Sequence[str], patience: float) -> str:
        """Run a peer on networks, and return why it did not come to an end, if it did not."""
        for network in networks:
            result_of(self.folder, peer, network).unlink(missing_ok=True)
        command = [sys.executable, "-m", self.module, peer, str(self.folder), *networks]
        return ended(command, patience, self.environment(peer))

    def _keep(self, peer: str, network: str, found: dict) -> None:
        """Write the rows of a peer on a network, each with where it comes from."""
        of = {"network": network, "peer": peer.replace("_", "-")}
        run = origin(found["seconds"], name=f"{peer}, {network}")
        write_json(self._path(peer, network), [of | row | run for row in found["rows"]])

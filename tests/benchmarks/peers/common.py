"""What a peer is given, and how its work is timed; numpy alone, so that a process of JAX loads no torch."""

import json
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

import numpy as np

TASKS = {"product": np.float32, "largest eigenvalue": np.float32, "Gram matrix": np.float64}
MATRICES = ("perceptron", "CNN")  # networks of which the Gram matrix is small
REPETITIONS = 3
LONG = 10.0  # CPU seconds of a call that is not repeated; first calls load and compile, for three seconds and more
LEAST = 0.05  # CPU seconds that a measurement goes on at least, by calling again
LANCZOS = 20  # steps of an iteration that does not stop by itself


def tasks_of(network: str) -> list[str]:
    """Return what is asked on a network."""
    return [task for task in TASKS if task != "Gram matrix" or network in MATRICES]


class Unable(Exception):
    """What a peer cannot do, with the reason in one sentence."""


class Problem(NamedTuple):
    """A network on its data: weights by their names in torch, and a vector of the length of all of them."""

    network: str
    weights: dict[str, np.ndarray]
    x: np.ndarray
    y: np.ndarray
    v: np.ndarray

    @property
    def classes(self) -> int:
        """Number of classes: entries of the last bias."""
        return len([*self.weights.values()][-1])

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        rest = {name: getattr(self, name) for name in ("x", "y", "v")}
        np.savez(folder / f"{self.network}.npz", **rest, **{f"weight {k}": w for k, w in self.weights.items()})

    def as_dtype(self, dtype: type) -> "Problem":
        def cast(array: np.ndarray) -> np.ndarray:
            return array.astype(dtype) if array.dtype.kind == "f" else array

        weights = {name: cast(weight) for name, weight in self.weights.items()}
        return self._replace(weights=weights, x=cast(self.x), v=cast(self.v))


def load(folder: Path, network: str) -> Problem:
    with np.load(folder / f"{network}.npz") as file:
        weights = {name.removeprefix("weight "): file[name] for name in file.files if name.startswith("weight ")}
        return Problem(network, weights, file["x"], file["y"], file["v"])


def measured(gradient: Callable[[], object], work: Callable[[], object]) -> tuple[dict[str, float], object]:
    """Return seconds of a gradient and of the work, the least of some repetitions side by side, and what it found.

    They are CPU seconds, but where they are called those of the wall; the first call loads and compiles. What takes
    long is not repeated: then the first call counts.
    """
    clock(gradient, LEAST)
    first, found = clock(work, 0.0)
    repetitions = REPETITIONS if first[0] < LONG else 1
    pairs = [
        (clock(gradient, LEAST)[0], clock(work, LEAST)[0] if repetitions > 1 else first) for _ in range(repetitions)
    ]
    (one, _), (cpu, wall) = (map(min, zip(*side, strict=True)) for side in zip(*pairs, strict=True))
    seconds = {"first_wall_seconds": first[1], "gradient_seconds": one, "seconds": cpu, "wall_seconds": wall}
    return {**seconds, "gradients": cpu / one, "repetitions": repetitions}, found


def clock(call: Callable[[], object], least: float) -> tuple[tuple[float, float], object]:
    """Return CPU and wall seconds of a call, on average over as many as take long enough, and its result."""
    calls, cpu, wall = 0, process_time(), perf_counter()
    while True:
        found, calls = call(), calls + 1
        taken = process_time() - cpu
        if taken >= least:
            return (taken / calls, (perf_counter() - wall) / calls), found


def difference(found: object, ours: object) -> float:
    """Return how far a result is from ours, relative to ours."""
    found, ours = np.asarray(found, float), np.asarray(ours, float)
    if found.shape != ours.shape:
        raise ValueError(f"It is of shape {found.shape}, ours of {ours.shape}.")
    return float(np.linalg.norm(found - ours) / np.linalg.norm(ours))


def reason(error: Exception) -> str:
    """Return an error as the last column of the table has it: the first line, with its kind unless it is `Unable`."""
    lines = str(error).strip().splitlines() or ["no message"]
    line = " ".join(lines[0].split())
    return line if isinstance(error, Unable) else f"{type(error).__name__}: {line}"[:200]


def result_of(folder: Path, peer: str, network: str) -> Path:
    """Return the file of what a peer found on a network."""
    return folder / "found" / f"{network}, {peer}.json"


def write_json(path: Path, content: object) -> None:
    """Write a file as a whole, so that none is there that a killed process began."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1))
    part.replace(path)

"""Plan the runs of a notebook over a grid, and estimate how long they take."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gnbook.sweep.folder import Folder
from gnbook.sweep.grid import Grid, read_grid
from gnbook.sweep.notebook import Notebook, read_notebook


@dataclass(frozen=True)
class Run:
    """A case of a grid before it runs."""

    name: str  # 20 hexadecimal digits, a digest of everything that its rows depend on
    label: str | None  # of the case in the grid
    given: dict[str, object]  # the parameters that the grid sets
    complete: dict[str, object]  # all parameters

    def __str__(self) -> str:
        """Return the name, the label and the parameters in one line."""
        given = ", ".join(f"{name}={value!r}" for name, value in self.given.items())
        return " ".join(filter(None, [self.name, self.label and f"[{self.label}]", given or "(defaults)"]))


@dataclass(frozen=True)
class Plan:
    """A notebook, the digest of everything that its rows depend on, a grid, and their runs."""

    notebook: Notebook
    digest: str
    grid: Grid
    runs: list[Run]


def make_plan(notebook: str | Path, grid: str | Path | Mapping[str, object], device: str | None = None) -> Plan:
    """Check a grid against a notebook and name the runs."""
    source, points = read_notebook(notebook), read_grid(grid)
    asked = {"device": device} if device is not None else {}
    if device == "cpu" and "device" not in source.names:
        asked = {}  # there it computes anyway
    if asked and any("device" in case.parameters for case in points.cases):
        raise ValueError("The grid sets the parameter 'device' itself; leave --device out.")
    digest, runs = source.digest(), []
    for case in points.cases:
        given = case.parameters | asked
        whole = source.complete(given)
        name = hashlib.sha256(json.dumps([digest, whole], sort_keys=True).encode()).hexdigest()[:20]
        if any(name == run.name for run in runs):
            raise ValueError(f"Two cases of the grid are the same: {case.parameters}.")
        runs.append(Run(name, case.name, {key: whole[key] for key in given}, whole))
    return Plan(source, digest, points, runs)


def preview(plan: Plan, folder: Folder, workers: int) -> str:
    """Return the cases, which of them are done, and about how long the others will take."""
    finished = folder.all_finished()
    reports = [finished.get(run.name) for run in plan.runs]
    lines = [f"{'done   ' if report else 'to do  '}{run}" for run, report in zip(plan.runs, reports, strict=True)]
    missing = reports.count(None)
    lines.append(f"{len(reports)} cases: {len(reports) - missing} done, {missing} to do.")
    lines += folder.of_other_versions(plan.digest)
    seconds = [report["seconds"] for report in filter(None, reports)]
    seconds = seconds or [report["seconds"] for report in finished.values()]  # of other grids and versions
    if missing and seconds:
        mean = sum(seconds) / len(seconds)
        rounds = -(-missing // workers)  # the last of them keep one worker busy and leave the others idle
        lines.append(f"About {duration(rounds * mean)} with {workers} workers, at {mean:.1f} seconds for each run.")
    elif missing:
        lines.append("No run has finished yet, so there is no estimate of the time.")
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """Return a duration in words."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"

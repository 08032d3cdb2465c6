"""Plan the runs of a notebook over a grid, and estimate how long they take."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gnbook.checkout import ROOT, environment
from gnbook.sweep.folder import Folder
from gnbook.sweep.grid import Grid, read_grid
from gnbook.sweep.notebook import Notebook, read_notebook
from gnbook.sweep.parameters import complete


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
    runs: tuple[Run, ...]


def make_plan(notebook: str | Path, grid: str | Path | Mapping[str, object], device: str | None = None) -> Plan:
    """Check a grid against a notebook and name the runs."""
    source, points = read_notebook(notebook), read_grid(grid)
    _check_checkout(source.path)
    if device is not None:
        _check_device(source, points, device)
    digest, runs, first = source.digest(), [], {}
    for number, case in enumerate(points.cases, start=1):
        asked = dict(case.parameters)
        if device is not None and "device" in source.names:
            asked["device"] = device
        whole = complete(source, asked)
        name = run_name(digest, whole)
        if name in first:
            raise ValueError(f"Cases {first[name]} and {number} of the grid are the same: {case.parameters}.")
        first[name] = number
        given = {key: whole[key] for key in asked}
        runs.append(Run(name=name, label=case.name, given=given, complete=whole))
    return Plan(notebook=source, digest=digest, grid=points, runs=tuple(runs))


def run_name(digest: str, parameters: Mapping[str, object]) -> str:
    """Return the name of a run, 20 hexadecimal digits."""
    return hashlib.sha256(json.dumps([digest, parameters], sort_keys=True).encode()).hexdigest()[:20]


def _check_checkout(notebook: Path) -> None:
    """Refuse a notebook of another checkout of the book: it would run by the code of this one."""
    checkouts = (folder for folder in notebook.resolve().parents if (folder / "book/gnbook").is_dir())
    other = next(checkouts, None)
    if environment() and other not in (None, ROOT.resolve()):
        raise ValueError(
            f"{notebook.name} belongs to the book in {other}, and this is gnbook of {ROOT}: "
            f"set PYTHONPATH={other}:{other / 'book'}, as `make sweep` does."
        )


def _check_device(notebook: Notebook, grid: Grid, device: str) -> None:
    if "device" not in notebook.names and device != "cpu":
        raise ValueError(f"{notebook.path.name} has no parameter 'device': it chooses by itself where it computes.")
    if any("device" in case.parameters for case in grid.cases):
        raise ValueError("The grid sets the parameter 'device' itself; leave --device out.")


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
        lines.append(
            f"About {duration(rounds * mean)} with {workers} workers, if they take as long as the finished ones: "
            f"{mean:.1f} seconds, the mean of {len(seconds)}."
        )
    elif missing:
        lines.append("No run has finished yet, so there is no estimate of the time.")
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """Return a duration in words."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"

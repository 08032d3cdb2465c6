"""A sweep from its start to its table."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from gnbook.sweep.cluster import cluster, outcomes, progress, visible_gpus
from gnbook.sweep.execute import Outcome, Settings
from gnbook.sweep.folder import Folder
from gnbook.sweep.plan import Plan, make_plan
from gnbook.sweep.provenance import git_revision
from gnbook.sweep.summary import Summary
from gnbook.sweep.table import merge, save
from gnlib.files import write

HOUR = 3600
EXTRAS = ("distributed", "filelock", "pandas", "papermill", "pyarrow", "tqdm", "yaml")


@dataclass(frozen=True)
class Options:
    """How runs are run; timeout, memory and threads are for each run."""

    workers: int | None = None  # processes on this machine; one for each core, or for each GPU if the device is one
    scheduler: str | None = None  # address of a Dask scheduler whose workers do the work instead
    device: str | None = None  # "cpu", "cuda" or "auto", handed to the notebook's parameter `device`
    timeout: float = HOUR  # seconds
    memory: int | str | None = None  # bytes, or "4GiB"; by default what there is, shared out
    threads: int = 1  # of linear algebra


def run(notebook: str | Path, grid: str | Path | Mapping[str, object], out: str | Path, **how: object) -> Summary:
    """Run a notebook for every case of a grid and write one table; finished runs are not repeated.

    In a script, call this under `if __name__ == "__main__":`, since worker processes import the script. The grid is a
    YAML file or its content, see `gnbook.sweep.grid`; `out` is the folder of the sweep; how runs are run is said by the
    fields of `Options`. What does not fit together is a `ValueError` before anything has run; a folder in use, or that
    cannot be written to, an `OSError`.
    """
    if missing := [name for name in EXTRAS if find_spec(name) is None]:
        raise ImportError(f"A sweep needs {missing[0]}: pip install 'gauss-newton-book[sweep]'.")
    options = Options(**how)
    plan = plan_for(notebook, grid, options)
    folder = Folder(Path(out).absolute())
    folder.prepare()
    with folder.locked():
        _claim(folder, plan)
        folder.remove_left_over()
        return _sweep(plan, folder, options)


def plan_for(notebook: str | Path, grid: str | Path | Mapping[str, object], options: Options) -> Plan:
    """Check the options, the grid and the notebook, and name the runs."""
    for name in ("workers", "timeout", "threads"):
        value = getattr(options, name)
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be positive, got {value}.")
    _bytes(options.memory)
    device = options.device
    if device == "auto":
        if options.scheduler is not None:
            raise ValueError("With a scheduler, say device cpu or cuda: the devices of its workers are not known here.")
        device = "cuda" if visible_gpus() else "cpu"
    return make_plan(notebook, grid, device)


def number_of_workers(options: Options, plan: Plan) -> int:
    """Return how many processes to start on this machine."""
    from dask.system import CPU_COUNT  # those that this process may use

    return options.workers or len(_gpus_for(plan)) or max(1, CPU_COUNT // options.threads)


def _sweep(plan: Plan, folder: Folder, options: Options) -> Summary:
    """Run the missing cases, and write the table even if some fail or the sweep is interrupted."""
    began = time.perf_counter()
    missing = [run for run in plan.runs if folder.finished(run.name) is None]
    ended: dict[str, Outcome] = {}
    reused, interrupted, settings = len(plan.runs) - len(missing), False, None
    if missing:
        workers = min(number_of_workers(options, plan), len(missing))
        settings = _settings(plan, folder, options, workers)
        try:
            with cluster(options.scheduler, workers) as client:
                for outcome in progress(outcomes(client, settings, missing), reused, len(plan.runs)):
                    ended[outcome.name] = outcome
        except KeyboardInterrupt:
            interrupted = True
    folder.remove_left_over()
    save(merge(folder, plan.runs), folder.path)
    errors = [(run, ended[run.name].error) for run in missing if run.name in ended]
    return Summary(
        folder=folder.path,
        runs=plan.runs,
        reused=reused,
        finished=sum(error is None for _, error in errors),
        failed=[(run, error) for run, error in errors if error is not None],
        interrupted=interrupted,
        seconds=time.perf_counter() - began,
        memory=max((outcome.memory for outcome in ended.values()), default=0),
        allowed=settings and settings.memory,
        other_versions=folder.of_other_versions(plan.digest),
    )


def _settings(plan: Plan, folder: Folder, options: Options, workers: int) -> Settings:
    from distributed.system import MEMORY_LIMIT  # that of this process: in a container less than the machine has

    memory = _bytes(options.memory)
    if memory is None and options.scheduler is None:
        memory = MEMORY_LIMIT // workers
    copy = folder.path / f"notebook-{plan.digest[:20]}.ipynb"
    write(copy, plan.notebook.source)
    return Settings(
        folder=folder.path,
        notebook=copy,
        directory=plan.notebook.path.parent,
        digest=plan.digest,
        timeout=options.timeout,
        memory=memory,
        threads=options.threads,
        gpus=_gpus_for(plan) if options.scheduler is None else (),
        provenance={"notebook": plan.notebook.path.name, "revision": git_revision(plan.notebook.path)},
    )


def _bytes(memory: int | str | None) -> int | None:
    from dask.utils import parse_bytes

    try:
        return None if memory is None else parse_bytes(memory)
    except ValueError:
        raise ValueError(f"memory is a number of bytes or a text such as '4GiB', got {memory!r}.") from None


def _claim(folder: Folder, plan: Plan) -> None:
    """Note the notebook that the folder belongs to, and refuse the folder of another one."""
    path, name = folder.path / "sweep.json", plan.notebook.path.name
    if path.exists() and (other := json.loads(path.read_text())["notebook"]) != name:
        raise ValueError(f"{folder.path} holds the sweep of {other}; give that of {name} another --out.")
    write(path, json.dumps({"notebook": name, "figures": plan.grid.figures}, indent=1))


def _gpus_for(plan: Plan) -> tuple[str, ...]:
    """Return the GPUs to share out: none unless the notebook is told to use one."""
    return visible_gpus() if any(run.complete.get("device") == "cuda" for run in plan.runs) else ()

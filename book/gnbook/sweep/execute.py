"""Execute one run, in a worker of the cluster."""

import errno
import json
import math
import os
import re
import shutil
import time
import traceback
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gnbook.checkout import environment as this_code
from gnbook.sweep.folder import Folder
from gnbook.sweep.kernel import Monitor, kernel_class
from gnbook.sweep.notebook import digest_of_rows
from gnbook.sweep.provenance import versions
from gnbook.sweep.rows import VARIABLE
from gnlib.files import write

STARTS = 3
"""Times that a kernel is started if it is lost before it answers: others may take a port that was chosen for it."""

ATTEMPTS = 2
"""Times that a run is begun if its kernel dies for no known reason."""

ANSWER = 120
"""Seconds that a new kernel has to answer, on a machine that is not busy, where it takes one."""

STDERR = "stderr.txt"

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
COLORS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Settings:
    """Settings that all runs of a sweep share."""

    folder: Path
    notebook: Path  # a copy without outputs, which nobody edits during the sweep
    directory: Path  # the folder that the notebook runs in
    digest: str  # of all that the rows depend on besides the parameters; that of a worker must be equal
    timeout: float  # seconds for each run
    memory: int | None  # bytes for each run; None for as much as its worker may have
    threads: int  # of linear algebra in each run
    gpus: tuple[str, ...]  # to share out among the workers of this machine
    provenance: Mapping[str, object]  # entries of run.json that are the same for all runs


@dataclass(frozen=True)
class Outcome:
    """How a run ended; `error` is None if it ended well, and a phrase otherwise."""

    name: str
    error: str | None
    seconds: float = 0.0
    memory: int = 0


def execute(settings: Settings, name: str, parameters: Mapping[str, object]) -> Outcome:
    """Run the notebook with these parameters, again if its kernel is lost, and keep the result."""
    from distributed import get_worker

    if _digest(settings) != settings.digest:
        return Outcome(name, "gnlib or gnbook has changed since the sweep began, or its worker has another one")
    done = Folder(settings.folder).finished(name)
    if done is not None:  # a worker was lost after it had finished the run
        return Outcome(name, None, done["seconds"], done["memory"])
    lost = Counter()  # kernels, by whether they had answered
    while True:
        try:
            run = Folder(settings.folder).new_run(name)
        except OSError as error:
            return Outcome(name, f"its folder cannot be made: {error}")
        memory = settings.memory or get_worker().memory_manager.memory_limit or None
        monitor, began = Monitor(settings.timeout, memory), time.perf_counter()
        raised = _run_notebook(settings, parameters, run, monitor)
        seconds = time.perf_counter() - began
        if monitor.complaint is None and _kernel_lost(raised, monitor):
            lost[monitor.answered] += 1
            if lost[monitor.answered] < (ATTEMPTS if monitor.answered else STARTS):
                shutil.rmtree(run, ignore_errors=True)
                continue
        outcome = Outcome(name, _reason(raised, monitor), seconds, monitor.peak)
        return _keep(settings, parameters, run, raised, outcome)


def _run_notebook(
    settings: Settings, parameters: Mapping[str, object], run: Path, monitor: Monitor
) -> Exception | None:
    """Run the notebook by papermill; return the exception that it raised."""
    import papermill
    from distributed import get_worker

    environment = {VARIABLE: str(run / "rows.json"), **dict.fromkeys(THREADS, str(settings.threads)), **this_code()}
    if settings.gpus:
        environment["CUDA_VISIBLE_DEVICES"] = gpu_of_worker(get_worker().name, settings.gpus)
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    try:
        with open(run / STDERR, "wb") as stderr, monitor.watching():
            papermill.execute_notebook(
                str(settings.notebook),
                str(run / "notebook.ipynb"),
                dict(parameters),
                kernel_name="python3",
                language="python",
                progress_bar=False,
                start_timeout=math.ceil(ANSWER * busy),
                on_notebook_start=monitor.note_answer,
                iopub_timeout=60,  # by default 4 seconds, which outputs may take on a machine with too much to do
                # For the engine. Its own `cwd` would change the directory of this process, and of all its threads.
                kernel_manager_class=kernel_class(environment, stderr, monitor.follow),
                resources={"metadata": {"path": str(settings.directory)}},
                shutdown_kernel="immediate",
            )
        if _digest(settings) != settings.digest:
            raise RuntimeError("gnlib or gnbook changed while it ran")
    except Exception as error:  # the other runs go on
        return error
    return None


def _keep(
    settings: Settings, parameters: Mapping[str, object], run: Path, raised: Exception | None, outcome: Outcome
) -> Outcome:
    """Write down how a run ended and move it to the finished or the failed runs."""
    folder = Folder(settings.folder)
    report = {
        "error": outcome.error,
        "parameters": parameters,
        "seconds": round(outcome.seconds, 3),
        "memory": outcome.memory,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "host": os.uname().nodename,
        "threads": settings.threads,
        "versions": versions(),
        "digest": settings.digest,
        **settings.provenance,
    }
    try:
        write(run / "run.json", json.dumps(report, indent=1))
        if raised is None:
            (run / STDERR).unlink()
            folder.keep_finished(run, outcome.name)
    except OSError as error:
        raised = raised or error
        outcome = replace(outcome, error=outcome.error or f"it cannot be kept: {error}")
    if isinstance(raised, OSError) and raised.errno == errno.ENOSPC:
        shutil.rmtree(run, ignore_errors=True)  # its remains would leave no room for the others
    elif raised is not None:
        with suppress(OSError):
            write(run / "traceback.txt", COLORS.sub("", "".join(traceback.format_exception(raised))))
        with suppress(OSError):
            folder.keep_failed(run, outcome.name)
    return outcome


def _digest(settings: Settings) -> str:
    """Return the digest of everything that the rows depend on, by the code of this worker."""
    return digest_of_rows(settings.notebook.read_text("utf8"), settings.directory)


def gpu_of_worker(worker: object, gpus: tuple[str, ...]) -> str:
    """Return the GPU for a worker of this machine: workers are called 0, 1, ..., also after a restart."""
    return gpus[int(worker) % len(gpus)]


def _kernel_lost(raised: Exception | None, monitor: Monitor) -> bool:
    from nbclient.exceptions import DeadKernelError

    # For a kernel that never answers, ended or not, jupyter_client raises a RuntimeError.
    return isinstance(raised, DeadKernelError if monitor.answered else RuntimeError)


def _reason(raised: Exception | None, monitor: Monitor) -> str | None:
    if raised is None or monitor.complaint is not None:
        return raised and monitor.complaint
    if _kernel_lost(raised, monitor):
        return "its kernel died, twice" if monitor.answered else f"its kernel never answered: {raised}"
    if hasattr(raised, "ename"):  # an error in the notebook
        return f"{raised.ename}: {raised.evalue}".splitlines()[0]
    return f"{type(raised).__name__}: {raised}".splitlines()[0]

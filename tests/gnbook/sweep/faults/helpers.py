"""A tiny notebook, sweeps of it in processes of their own, and ways to wait for what they do."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import nbformat
import psutil
from gnbook.sweep.kernel import LAUNCHER

PATIENCE = 400
"""Seconds after which something is taken not to happen at all; far more than it takes on a busy machine."""

PARAMETERS = """\
case = 0
pause = 0.0  # seconds
misbehave = ""
"""

# It finds `record` without running `gnlib/__init__.py`, which imports torch: most of the time would go there.
RECORD = """\
import importlib.util
import os
import pathlib
import sys

sys.modules["gnlib"] = importlib.util.module_from_spec(importlib.util.find_spec("gnlib"))
folder = pathlib.Path(importlib.util.find_spec("gnbook").submodule_search_locations[0])
spec = importlib.util.spec_from_file_location("rows", folder / "sweep" / "rows.py")
rows = importlib.util.module_from_spec(spec)
spec.loader.exec_module(rows)
"""

WORK = """\
import time

with open(os.environ["TEST_LOG"], "a") as log:
    log.write(f"{case}\\n")
time.sleep(pause)
if misbehave == "raise":
    raise ValueError("asked to fail")
if misbehave == "hang":
    time.sleep(3600)
if misbehave == "die":
    os.kill(os.getpid(), 9)
if misbehave == "die once":
    marker = pathlib.Path(os.environ["TEST_LOG"] + f".{case}")
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), 9)
if misbehave == "grow":
    hoard = [bytearray(b"x" * 2**20) for _ in range(2**14)]
rows.record({"step": step, "value": case / 7 + step, "odd": bool(case % 2)} for step in range(2))
"""


def write_notebook(path, work=WORK, parameters=PARAMETERS, tags=("parameters",)):
    cell = nbformat.v4.new_code_cell
    cells = [cell(parameters, metadata={"tags": list(tags)}), cell(RECORD), cell(work)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


class Sweep:
    """The command line, on a tiny notebook in a folder of its own."""

    def __init__(self, folder, grid, *, workers=2):
        folder.mkdir(parents=True, exist_ok=True)
        self.notebook, self.grid = write_notebook(folder / "tiny.ipynb"), folder / "grid.yml"
        self.grid.write_text(json.dumps(grid))  # JSON is YAML
        self.out, self.log, self.workers = folder / "out", folder / "log", workers
        self.processes = []

    def start(self, *options):
        command = ["-m", "gnbook.sweep", self.notebook, "--grid", self.grid, "--out", self.out, *options]
        if "--scheduler" not in options:
            command += ["--workers", self.workers]
        process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.notebook.parent,
            env={**os.environ, "TEST_LOG": str(self.log)},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored by jobs in the background
        )
        self.processes.append(process)
        return process

    def end(self):
        """Leave nothing behind, whatever a test has come to."""
        for process in self.processes:
            if process.poll() is None:
                for each in (*family(process), process):
                    with suppress(psutil.NoSuchProcess):
                        each.kill()
                process.communicate()

    def run(self, *options, status=0):
        process = self.start(*options)
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == status, f"{process.returncode}: {out}{err}"
        return out + err

    @property
    def finished(self):
        """The names of finished runs."""
        return {path.name for path in (self.out / "runs").glob("*")}

    @property
    def executed(self):
        """The cases that were begun, in order, also those that did not end."""
        return [int(line) for line in self.log.read_text().split()] if self.log.exists() else []

    def results(self):
        """The table less what differs from one run to the next: when, how long, how much."""
        import pandas

        table = pandas.read_parquet(self.out / "table.parquet")
        return table.drop(columns=["run_seconds", "run_memory_mib", "run_finished"])


def wait_until(condition, what, process=None):
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert process is None or process.poll() is None, f"{what}: the sweep ended: {process.communicate()}"
        assert time.monotonic() < deadline, f"in {PATIENCE} seconds it did not happen that {what}"
        time.sleep(0.05)
    return value


def family(process):
    """All processes that a process has started, and those that they have."""
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def command(process):
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def kernels(process):
    return [child for child in family(process) if str(LAUNCHER) in command(child)]


def busy_workers(process):
    """The workers in the middle of a run: those that are parents of a kernel."""
    return [parent for kernel in kernels(process) if (parent := kernel.parent()) is not None]


def gone(processes):
    return all(not each.is_running() or each.status() == psutil.STATUS_ZOMBIE for each in processes)

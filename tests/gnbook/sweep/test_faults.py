"""Sweeps in processes of their own: what goes wrong in a run stays there, and nothing that was finished is lost."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import nbformat
import pandas
import psutil
import pytest
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


class Sweep:
    """The command line, on a tiny notebook in a folder of its own."""

    def __init__(self, folder, grid):
        folder.mkdir()
        cell = nbformat.v4.new_code_cell
        cells = [cell(PARAMETERS, metadata={"tags": ["parameters"]}), cell(RECORD), cell(WORK)]
        self.notebook, self.grid = folder / "tiny.ipynb", folder / "grid.yml"
        nbformat.write(nbformat.v4.new_notebook(cells=cells), self.notebook)
        self.grid.write_text(json.dumps(grid))  # JSON is YAML
        self.out, self.log, self.processes = folder / "out", folder / "log", []

    def start(self, *options):
        command = ["-m", "gnbook.sweep", self.notebook, "--grid", self.grid, "--out", self.out, *options]
        command += [] if "--scheduler" in options else ["--workers", 2]
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

    def run(self, *options, status=0):
        process = self.start(*options)
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == status, f"{process.returncode}: {out}{err}"
        return out + err

    @property
    def finished(self):
        """When the runs that have finished did so, by their names."""
        return {path.name: (path / "run.json").stat().st_mtime_ns for path in (self.out / "runs").glob("*")}

    @property
    def executed(self):
        """The cases that were begun, in order, also those that did not end."""
        return [int(line) for line in self.log.read_text().split()] if self.log.exists() else []


@pytest.fixture
def make_sweep(tmp_path):
    """Make sweeps, each in a folder of its own, none of which outlives the test."""
    made = []

    def make(grid):
        made.append(Sweep(tmp_path / str(len(made)), grid))
        return made[-1]

    yield make
    for process in (process for sweep in made for process in sweep.processes):
        end(process)


def end(process):
    """End a process and all that it has started."""
    for each in (*family(process), process):
        with suppress(psutil.NoSuchProcess):
            each.kill()
    process.communicate()


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


def kernels(process):
    def command(child):
        try:
            return child.cmdline()
        except psutil.Error:
            return []

    return [child for child in family(process) if str(LAUNCHER) in command(child)]


def busy_workers(process):
    """The workers in the middle of a run: those that are parents of a kernel."""
    return [parent for kernel in kernels(process) if (parent := kernel.parent()) is not None]


def gone(processes):
    return all(not each.is_running() or each.status() == psutil.STATUS_ZOMBIE for each in processes)


@pytest.mark.nightly
def test_runs_that_raise_hang_die_or_grow_fail_alone_and_are_kept(make_sweep):
    faults = ["", "raise", "hang", "die", "die once", "grow", ""]
    sweep = make_sweep({"zip": {"case": list(range(len(faults))), "misbehave": faults}})
    said = sweep.run("--timeout", 25, "--memory", "400MiB", status=1)
    for reason in (
        "7 cases: 0 done before, 3 done now, 4 failed",
        "misbehave='raise': ValueError: asked to fail",
        "misbehave='hang': it took longer than 25 seconds (--timeout)",
        "misbehave='die': its kernel died, twice",
        "misbehave='grow': it held 0.",
        "of 0.39 GiB allowed",
    ):
        assert reason in said
    assert list(pandas.read_parquet(sweep.out / "table.parquet").case.unique()) == [0, 4, 6]
    assert sorted(sweep.executed) == [0, 1, 2, 3, 3, 4, 4, 5, 6]
    reports = [(path.parent, json.loads(path.read_text())) for path in (sweep.out / "failed").glob("*/run.json")]
    kept = {report["parameters"]["misbehave"]: path for path, report in reports}
    assert set(kept) == {"raise", "hang", "die", "grow"}
    assert all((path / "notebook.ipynb").exists() for path in kept.values())
    details = (kept["raise"] / "traceback.txt").read_text()
    assert "ValueError: asked to fail" in details and "\x1b" not in details
    sweep.grid.write_text(json.dumps({"zip": {"case": [0, 1], "misbehave": ["", "raise"]}}))
    assert "2 cases: 1 done before, 0 done now, 1 failed" in sweep.run(status=1)


CASES = 5


@pytest.fixture
def sweep(make_sweep):
    return make_sweep({"parameters": {"pause": 0.2}, "product": {"case": {"seeds": CASES}}})


def assert_whole(sweep):
    table = pandas.read_parquet(sweep.out / "table.parquet")
    assert list(table.case) == [case for case in range(CASES) for _ in range(2)]  # in the order of the grid
    assert list(table.value) == [case / 7 + step for case in range(CASES) for step in range(2)]
    assert list((sweep.out / "unfinished").iterdir()) == []


nightly = pytest.mark.nightly
WHOM = [busy_workers, kernels, signal.SIGKILL, signal.SIGTERM]


@pytest.mark.parametrize("whom", [signal.SIGINT, *(pytest.param(whom, marks=nightly) for whom in WHOM)])
def test_whatever_is_killed_nothing_finished_is_lost_and_no_process_left(whom, sweep):
    """A worker or a kernel costs one run, which is done again; the driver a second start, that does what is missing."""
    driver = sweep.start()
    wait_until(lambda: len(sweep.finished) >= 2 and kernels(driver), "two runs finish and one goes on", driver)
    if callable(whom):
        victim = wait_until(lambda: whom(driver), "there is one to kill", driver)[0]
        left = victim.children(recursive=True)
        victim.kill()
    else:
        left = family(driver)
        driver.send_signal(whom)
    out, err = driver.communicate(timeout=PATIENCE)
    wait_until(lambda: gone(left), "workers and kernels end")
    if callable(whom):
        assert driver.returncode == 0 and f"{CASES} done now, 0 failed" in out, out + err
        assert CASES <= len(sweep.executed) <= CASES + 2
    else:
        done, begun = sweep.finished, len(sweep.executed)
        missing = CASES - len(done)
        if whom != signal.SIGKILL:
            assert driver.returncode == 130 and "Interrupted; the same command does what is missing." in out, out + err
            assert len(pandas.read_parquet(sweep.out / "table.parquet")) == 2 * len(done)  # it holds what there is
        assert f"{CASES} cases: {len(done)} done before, {missing} done now, 0 failed" in sweep.run()
        assert len(sweep.executed) == begun + missing and len(set(sweep.executed[begun:])) == missing
        assert done.items() <= sweep.finished.items()
    assert_whole(sweep)


@nightly
def test_a_scheduler_that_does_not_answer_is_an_error(sweep):
    assert "No Dask scheduler answers at tcp://127.0.0.1:1" in sweep.run("--scheduler", "tcp://127.0.0.1:1", status=2)
    assert sweep.executed == []


@pytest.fixture
def cluster(tmp_path):
    """The address of a scheduler with two workers, each a process started by hand."""
    where = tmp_path / "scheduler.json"
    how = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
    how["env"] = {**os.environ, "TEST_LOG": str(tmp_path / "log")}
    commands = [
        ["scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", where],
        *[["worker", "--scheduler-file", where, "--nthreads", "1", "--no-dashboard"]] * 2,
    ]
    processes = []
    try:
        for command in commands:
            processes.append(subprocess.Popen([sys.executable, "-m", "dask", *map(str, command)], **how))
            wait_until(where.exists, "the scheduler starts", processes[0])
        yield json.loads(where.read_text())["address"]
    finally:
        for process in processes:
            end(process)


@pytest.mark.nightly
def test_a_cluster_gives_the_same_table_as_this_machine(cluster, sweep):
    assert f"{CASES} cases: 0 done before, {CASES} done now, 0 failed" in sweep.run("--scheduler", cluster)
    assert_whole(sweep)

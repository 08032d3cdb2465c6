"""What goes wrong in a run stays in that run; what is wrong with a sweep is said before anything runs."""

import json
import os
import socket
import subprocess
import sys

import psutil
import pytest

from tests.gnbook.sweep.faults.helpers import PATIENCE, family, gone, wait_until


@pytest.mark.nightly
def test_runs_that_raise_hang_die_or_grow_fail_alone_and_are_kept(make_sweep):
    faults = ["", "raise", "hang", "die", "die once", "grow", ""]
    grid = {"zip": {"case": list(range(len(faults))), "misbehave": faults}}
    sweep = make_sweep(grid)
    said = sweep.run("--timeout", 25, "--memory", "400MiB", status=1)
    assert "7 cases: 0 done before, 3 done now, 4 failed" in said
    for reason in (
        "misbehave='raise': ValueError: asked to fail",
        "misbehave='hang': it took longer than 25 seconds (--timeout)",
        "misbehave='die': its kernel died, twice",
        "misbehave='grow': it held 0.",
        "of 0.39 GiB allowed",
    ):
        assert reason in said
    assert list(sweep.results().case.unique()) == [0, 4, 6]
    assert sorted(sweep.executed) == [0, 1, 2, 3, 3, 4, 4, 5, 6]

    kept = {report["parameters"]["misbehave"]: path for path, report in failures(sweep)}
    assert set(kept) == {"raise", "hang", "die", "grow"}
    assert all((path / "notebook.ipynb").exists() for path in kept.values())
    assert "ValueError: asked to fail" in (kept["raise"] / "traceback.txt").read_text()
    assert "\x1b" not in (kept["raise"] / "traceback.txt").read_text()

    sweep.grid.write_text(json.dumps({"zip": {"case": [0, 1], "misbehave": ["", "raise"]}}))
    assert "2 cases: 1 done before, 0 done now, 1 failed" in sweep.run(status=1)


def failures(sweep):
    return [(path.parent, json.loads(path.read_text())) for path in (sweep.out / "failed").glob("*/run.json")]


CONNECT = """
import sys
import gnbook.sweep

try:
    gnbook.sweep.run(*sys.argv[1:4], scheduler=sys.argv[4])
except OSError as error:
    print(error)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("listens", [False, True])
def test_a_scheduler_that_does_not_answer_is_an_error(listens, make_sweep):
    sweep = make_sweep({"product": {"case": [0]}})
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1] if listens else 1}"
        command = [sys.executable, "-c", CONNECT, sweep.notebook, sweep.grid, sweep.out, address]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert f"No Dask scheduler answers at {address}" in done.stdout
    assert sweep.executed == []


@pytest.fixture
def cluster(tmp_path):
    """The address of a scheduler with two workers, each a process started by hand."""
    dask, where = [sys.executable, "-m", "dask"], tmp_path / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    surroundings = {"cwd": tmp_path, "env": {**os.environ, "TEST_LOG": str(tmp_path / "log")}}
    commands = [
        ["scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", where],
        *[["worker", "--scheduler-file", where, "--nthreads", "1", "--no-dashboard"]] * 2,
    ]
    processes = []
    try:
        for command in commands:
            processes.append(subprocess.Popen(dask + list(map(str, command)), **quiet, **surroundings))
            wait_until(where.exists, "the scheduler starts", processes[0])
        yield json.loads(where.read_text())["address"]
    finally:
        everything = [each for process in processes for each in (*family(process), psutil.Process(process.pid))]
        for each in everything:
            if each.is_running():
                each.kill()
        for process in processes:
            process.wait()
        wait_until(lambda: gone(everything), "the cluster ends")


@pytest.mark.nightly
def test_a_cluster_gives_the_same_table_as_this_machine(cluster, make_sweep):
    import pandas

    grid = {"product": {"case": {"from": 3, "to": 5}}}
    here, there = make_sweep(grid), make_sweep(grid)
    here.run()
    assert "3 cases: 0 done before, 3 done now, 0 failed" in there.run("--scheduler", cluster)
    pandas.testing.assert_frame_equal(there.results(), here.results(), check_exact=True)

"""A kernel that fails before it answers is started again, and ends with its sweep."""

import os
import signal
import sys

import psutil
import pytest
from gnbook.sweep import execute as module
from gnbook.sweep.execute import STARTS, execute
from gnbook.sweep.folder import Folder

from tests.gnbook.sweep.faults.helpers import PATIENCE, family, gone, kernels, wait_until, write_notebook
from tests.gnbook.sweep.helpers import settings_for

# Kernels import this as `ipykernel`: a fault, and then the real one.
STAND_IN = """\
import ctypes, json, os, socket, sys, time

folder = os.path.dirname(__file__)
with open(folder + "/starts", "a+") as file:
    file.write("x")
    file.seek(0)
    starts = len(file.read())
with open(sys.argv[sys.argv.index("-f") + 1]) as file:
    connection = json.load(file)
{fault}
sys.path.remove(folder)
del sys.modules["ipykernel"]
import ipykernel
"""
TAKE = """sys.taken = socket.create_server((connection["ip"], connection["{port}"]))"""
SILENT = "time.sleep(3600)"
STUCK = "ctypes.PyDLL(None).sleep(3600)"  # and no other thread of it runs


class Starts:
    """Have kernels begin with a fault; count how many have begun."""

    def __init__(self, folder, monkeypatch):
        folder.mkdir()
        self.folder, self.monkeypatch = folder, monkeypatch

    def __call__(self, fault):
        (self.folder / "ipykernel.py").write_text(STAND_IN.format(fault=fault))
        self.monkeypatch.setenv("PYTHONPATH", str(self.folder), prepend=os.pathsep)

    @property
    def count(self):
        path = self.folder / "starts"
        return path.stat().st_size if path.exists() else 0


@pytest.fixture
def starts(tmp_path, monkeypatch):
    monkeypatch.setenv("TEST_LOG", str(tmp_path / "log"))
    return Starts(tmp_path / "stand-in", monkeypatch)


@pytest.fixture
def notebook(tmp_path):
    return write_notebook(tmp_path / "tiny.ipynb")


@pytest.fixture
def out(tmp_path):
    folder = Folder(tmp_path / "out")
    folder.prepare()
    return folder


@pytest.fixture
def run(notebook, out):
    """Run the tiny notebook once, in this process."""
    yield lambda: execute(settings_for(out.path, notebook), "name", {"case": 1})
    assert gone(kernels(psutil.Process()))


@pytest.mark.parametrize("port", ["shell_port", "control_port"])
def test_a_kernel_whose_port_is_taken_is_started_again_with_others(port, starts, run, out, monkeypatch):
    monkeypatch.setattr(module, "_patience", lambda: PATIENCE)  # that it ends is enough to be noticed
    starts(f"if starts == 1: {TAKE.format(port=port)}")
    assert run().error is None
    assert starts.count == 2
    assert {path.name for path in (out.runs / "name").iterdir()} == {"notebook.ipynb", "run.json", "rows.json"}


def test_a_kernel_imports_the_code_of_this_checkout(run, tmp_path, monkeypatch):
    for package in ("gnbook", "gnlib"):
        (tmp_path / "another" / package).mkdir(parents=True)
        (tmp_path / "another" / package / "__init__.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "another"))
    monkeypatch.setenv("TEST_LOG", str(tmp_path / "log"))
    assert run().error is None


def test_a_kernel_that_can_never_begin_fails_with_what_it_said(starts, run, out):
    starts(TAKE.format(port="iopub_port"))
    error = run().error
    assert error.startswith("its kernel never answered: zmq.error.ZMQError: Address already in use")
    assert starts.count == STARTS
    said = (out.failed / "name" / "stderr.txt").read_text()
    assert said.startswith("Traceback (most recent call last):") and said.strip().endswith(error.partition(": ")[2])


def test_a_kernel_that_lives_and_never_answers_is_lost_after_a_while(starts, run, monkeypatch):
    monkeypatch.setattr(module, "_patience", lambda: 1)
    starts(SILENT)
    assert run().error == "its kernel never answered: Kernel didn't respond in 1 seconds"
    assert starts.count == STARTS


def test_on_a_busy_machine_a_kernel_may_take_longer_to_answer(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    for load, patience in ((0.1, 120), (2, 120), (4, 240), (7, 420)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0, 0))
        assert module._patience() == patience


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("fault", "how"),
    [
        (SILENT, signal.SIGTERM),
        pytest.param(
            STUCK, signal.SIGKILL, marks=pytest.mark.skipif(sys.platform != "linux", reason="needs what Linux offers")
        ),
    ],
)
def test_a_kernel_that_never_answers_does_not_outlive_its_sweep(fault, how, starts, make_sweep):
    starts(fault)
    sweep = make_sweep({"product": {"case": [0]}})
    driver = sweep.start()
    wait_until(lambda: starts.count == 1, "a kernel is silent", driver)
    children = family(driver)
    assert len(kernels(driver)) == 1
    driver.send_signal(how)
    driver.communicate(timeout=PATIENCE)
    wait_until(lambda: gone(children), "workers and kernels end after their driver")

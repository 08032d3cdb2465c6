"""The folder of a sweep: locked while it is at work, without half reports, and no source of the book."""

import os
import subprocess
import sys

import pytest

from tests.gnbook.sweep.helpers import finish


def test_a_run_of_which_a_crash_left_half_a_report_is_run_again(plan, folder):
    finish(folder, plan.runs[0], [])
    (folder.runs / plan.runs[0].name / "run.json").write_text('{"versions"')
    assert folder.finished(plan.runs[0].name) is None
    assert not (folder.runs / plan.runs[0].name).exists()


HOLD = """
import sys, time
from pathlib import Path
from gnbook.sweep.folder import Folder

with Folder(Path(sys.argv[1])).locked():
    print("locked", flush=True)
    time.sleep(3600)
"""


def test_a_folder_is_locked_until_its_sweep_ends_or_dies(folder):
    with folder.locked(), pytest.raises(BlockingIOError, match=rf"\(process {os.getpid()} on "), folder.locked():
        pass
    with subprocess.Popen([sys.executable, "-c", HOLD, folder.path], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "locked\n"
            with pytest.raises(BlockingIOError, match=rf"at work in .* \(process {other.pid} on "), folder.locked():
                pass
        finally:
            other.kill()
    with folder.locked():
        pass

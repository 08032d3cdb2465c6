"""Processes that run the code of this checkout."""

import os
from pathlib import Path

from gnbook import checkout

ROOT = Path(__file__).parents[2]


def test_a_process_looks_here_first_but_not_in_the_folder_of_an_installed_package(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["/another", str(ROOT)]))
    assert checkout.environment() == {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "book"), "/another"])}
    monkeypatch.setattr(checkout, "ROOT", tmp_path)
    assert checkout.environment() == {}  # its folder must not come before Python's own

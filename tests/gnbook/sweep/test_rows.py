"""Rows: what a chapter may record, within a sweep and outside."""

import json
import subprocess
import sys

import gnbook.sweep
import numpy as np
import torch


def test_rows_of_all_calls_are_kept_with_scalars_as_plain_values(tmp_path, monkeypatch):
    path = tmp_path / "rows.json"
    monkeypatch.setenv("GNLIB_SWEEP_ROWS", str(path))
    gnbook.sweep.record([{"a": np.float64(0.1), "b": torch.tensor(3)}])
    gnbook.sweep.record({"c": value} for value in (None, True, "text", float("inf")))
    assert json.loads(path.read_text()) == {
        "device": "cpu",
        "rows": [{"a": 0.1, "b": 3}, {"c": None}, {"c": True}, {"c": "text"}, {"c": float("inf")}],
    }


def test_a_chapter_can_record_where_nothing_is_installed_for_sweeps():
    code = """
import sys, gnbook, gnlib
before = {name.partition(".")[0] for name in sys.modules}
import gnbook.sweep
after = {name.partition(".")[0] for name in sys.modules}
print(*(after - before - sys.stdlib_module_names))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []

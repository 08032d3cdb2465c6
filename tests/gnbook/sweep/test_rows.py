"""Rows: what a chapter may record, within a sweep and outside."""

import json
import subprocess
import sys

import gnbook.sweep
import numpy as np
import pytest
import torch

bad_input = pytest.mark.bad_input


def test_outside_a_sweep_record_only_returns(monkeypatch):
    monkeypatch.delenv("GNLIB_SWEEP_ROWS", raising=False)
    assert gnbook.sweep.record([]) is None


def test_rows_of_all_calls_are_kept_with_scalars_as_plain_values(tmp_path, monkeypatch):
    path = tmp_path / "rows.json"
    monkeypatch.setenv("GNLIB_SWEEP_ROWS", str(path))
    gnbook.sweep.record([{"a": np.float64(0.1), "b": torch.tensor(3)}])
    gnbook.sweep.record({"c": value} for value in (None, True, "text", float("inf")))
    assert json.loads(path.read_text()) == {
        "device": "cpu",
        "rows": [{"a": 0.1, "b": 3}, {"c": None}, {"c": True}, {"c": "text"}, {"c": float("inf")}],
    }


@bad_input
@pytest.mark.parametrize(
    ("row", "error", "complaint"),
    [
        ([1], TypeError, "record takes a list of mappings"),
        ({1: 1}, TypeError, "is not named by text"),
        ({"run_seconds": 1}, ValueError, "the sweep's own columns do"),
        ({"a": [1, 2]}, TypeError, "holds a list; a number"),
    ],
)
def test_a_row_that_cannot_be_kept_is_told_why(row, error, complaint, tmp_path, monkeypatch):
    monkeypatch.setenv("GNLIB_SWEEP_ROWS", str(tmp_path / "rows.json"))
    with pytest.raises(error, match=complaint):
        gnbook.sweep.record([row])
    assert list(tmp_path.iterdir()) == []


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

"""The command prints the report of a network in a script, or one sentence."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gnlib.__main__ import main

SCRIPT = """
import torch
from width import WIDTH

torch.manual_seed(0)
network = torch.nn.Linear(3, 2)


def made():
    return torch.nn.Linear(3, WIDTH)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "width.py").write_text("WIDTH = 2")
    torch.manual_seed(0)
    x, y = torch.randn(4, 3), torch.tensor([0, 1, 1, 0])
    torch.save(x, tmp_path / "x.pt")
    torch.save((x, y), tmp_path / "pair.pt")
    torch.save({"x": x, "y": y}, tmp_path / "dict.pt")
    (tmp_path / "text.pt").write_text("no tensors")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def test_it_runs_as_a_module(folder):
    command = [sys.executable, "-m", "gnlib", "report", "script.py:network", "--data", "x.pt"]
    root = str(Path(__file__).parents[3])
    found = subprocess.run(command, capture_output=True, text=True, cwd=folder, env={"PYTHONPATH": root})
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("network") and "n = 4, k = 2, p = 8" in found.stdout


@pytest.mark.parametrize("data", ["pair.pt", "dict.pt"])
@pytest.mark.parametrize("name", ["network", "made"])
def test_networks_and_functions_with_targets(folder, capsys, data, name):
    main(["report", f"script.py:{name}", "--data", data, "--loss", "cross_entropy", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["loss"] == "cross_entropy" and found["full"] == 4 and found["forecast"]["trusted"] > 0


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["script.py", "--data", "x.pt"], "FILE.py:NAME was expected"),
        (["none.py:network", "--data", "x.pt"], "FILE.py:NAME was expected"),
        (["script.py:other", "--data", "x.pt"], "script.py has no 'other'"),
        (["script.py:WIDTH", "--data", "x.pt"], "module is of type int"),
        (["script.py:network", "--data", "none.pt"], "none.pt"),
        (["script.py:network", "--data", "text.pt"], "text.pt cannot be read as tensors"),
        (["script.py:network", "--data", "x.pt", "--memory", "0"], "memory is 0.0"),
    ],
)
def test_what_wrong_arguments_are_told(folder, capsys, arguments, message):
    with pytest.raises(SystemExit) as stopped:
        main(["report", *arguments])
    assert stopped.value.code == 2
    found = capsys.readouterr().err
    assert message in found and len(found.splitlines()) == 1

"""`CHECK_SHAPES=1 pytest` checks the shapes in annotations at each call, as the nightly workflow does."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = """
import jaxtyping, pytest, torch
import gnlib

def test_checked():
    with pytest.raises(jaxtyping.TypeCheckError):
        gnlib.second_moment(torch.ones(3))

@pytest.mark.bad_input
def test_unchecked():
    with pytest.raises(ValueError):
        gnlib.second_moment(torch.ones(3))
"""


def test_shapes_are_checked_but_not_where_a_test_gives_wrong_arguments(tmp_path):
    (tmp_path / "test_shapes.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", ROOT / "pyproject.toml", tmp_path]
    surroundings = {**os.environ, "CHECK_SHAPES": "1"}
    done = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False)
    assert "2 passed" in done.stdout, done.stdout + done.stderr

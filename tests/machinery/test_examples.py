"""The examples of the landing page and of the page on sweeps run as they are printed."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from gnbook.sweep.grid import read_grid

from book.picture import GOAL, SHARES, run

ROOT = Path(__file__).parents[2]


def output_of(page, fence):
    """What the one example in a fence of this kind that imports gnlib prints in a fresh interpreter."""
    found = re.findall(rf"```{fence}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    (example,) = [code for code in found if "import gnlib" in code]
    return subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=True).stdout


def test_the_example_of_the_landing_page():
    """It prints both ends of the slider of the figure above it, and advice that helps."""
    ends, losses = zip(*(run(share) for share in (SHARES[0], SHARES[-1])), strict=True)
    *printed, advice, pace = output_of("book/index.md", "{code-cell} ipython3").splitlines()
    assert printed == [f"{kappa:,.0f}" for kappa in ends]
    assert "the inputs" in advice
    assert float(re.fullmatch(r"([\d.]+) times fewer steps, tried", pace)[1]) > 2
    assert ends[0] > 20 * ends[1]
    said = r" from ([\d,]+) to (\d+), [^.]*0.05 from ([\d,]+) to (\d+) "
    page = " ".join((ROOT / "book/index.md").read_text().split())
    *kappas, before, after = (int(n.replace(",", "")) for n in re.search(said, page).groups())
    assert kappas == pytest.approx(ends, abs=0.5)
    steps = [np.argmax(path <= GOAL) for path in losses]
    assert [before, after] == pytest.approx(steps, rel=0.05)  # rounding moves a ReLU, and a step or two in a hundred


def test_the_example_of_the_sweeps():
    """Its notebook runs where there is no sweep, and its grid has as many cases as the summary counts."""
    assert output_of("book/sweeps.md", "python") == ""
    page = (ROOT / "book/sweeps.md").read_text()
    (grid,) = [block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "name: width" in block]
    assert f"{len(read_grid(yaml.safe_load(grid)).cases)} cases: " in page

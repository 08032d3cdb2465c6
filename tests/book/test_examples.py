"""The examples of the README and of the landing page run as they are printed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["README.md", "book/index.md"])
def test_the_example_runs_in_a_fresh_interpreter(page):
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    run = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=True)
    assert re.search(r"condition number \d+\.\d+: eigenvalues .* rank 5870 .*Lemma2\(first=", run.stdout, re.DOTALL)


def test_nothing_but_the_bare_dependencies_is_imported():
    """A machine with torch, numpy, scipy and jaxtyping alone can import gnlib."""
    code = "import sys, gnlib; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    unwanted = {"matplotlib", "pandas", "pooch", "PIL", "papermill", "dask", "IPython"}
    assert not unwanted & set(run.stdout.split())

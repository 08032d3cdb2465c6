"""What is installed, sdist and wheel, and the examples of the README and of pages, which run as they are printed."""

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml
from gnbook.checkout import ROOT
from gnbook.sweep.grid import read_grid

from book.picture import GOAL, SHARES
from book.picture import run as train

pytestmark = pytest.mark.slow

HIDDEN = "IPython", "PIL", "dask", "gnbook", "jupytext", "matplotlib", "pandas", "papermill", "plotly", "pooch"


def run(*command, cwd):
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of an sdist of this tree, of a wheel built from that sdist, and of what the wheel holds."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder


def test_the_wheel_holds_both_packages_with_their_data_and_the_sdist_the_tests_too(built):
    (sdist,), (wheel,) = built.glob("*.tar.gz"), built.glob("*.whl")
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel, cwd=built)
    files = {path.relative_to(built / "installed") for path in built.glob("installed/**/*") if path.is_file()}
    names = {path.as_posix() for path in files if not path.parts[0].endswith(".dist-info")}
    packages = ("gnlib", "book/gnbook")
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", *packages, cwd=ROOT).split()
    present = {name.removeprefix("book/") for name in listed if (ROOT / name).is_file()}
    tables = {f"gnbook/kept/{path.name}" for path in (ROOT / "book/results").iterdir()}
    assert names == present | tables
    assert {"gnlib/py.typed", "gnlib/data/samples/mnist.npz", "gnbook/schematics/residual.svg"} <= names
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "README.md", "book/results/deep-linear.csv", "tests/conftest.py"} <= names


def run_bare(code, built):
    """Run code with the library of the wheel, where all that it does not need cannot be imported."""
    path, hidden = f"sys.path.insert(0, {str(built / 'installed')!r})", f"sys.modules.update(dict.fromkeys({HIDDEN}))"
    return run(sys.executable, "-I", "-c", f"import sys; {path}; {hidden}\n{code}", cwd=built)


def test_importing_the_library_loads_none_of_the_large_parts_of_scipy(built):
    """They took as long to import as the library itself, and only some calls need them."""
    place, *loaded = run_bare("import gnlib; print(gnlib.__file__, *sys.modules)", built).split()
    assert Path(place).is_relative_to(built)
    assert not {"scipy.optimize", "scipy.special", "scipy.linalg", "scipy.sparse"} & {*loaded}


def test_the_example_of_the_readme_runs_beside_the_bare_dependencies(built):
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    printed = run_bare(example, built)
    assert sum(map(bool, example.splitlines())) == 5
    assert re.search(r"n = 200, k = 10, p = 79510.* 1800 of 1800: .*\ncost  .*\n2 +1010 ", printed, re.DOTALL)


def output_of(page, fence):
    """What the one example in a fence of this kind that imports gnlib prints in a fresh interpreter."""
    found = re.findall(rf"```{fence}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    (example,) = [code for code in found if "import gnlib" in code]
    return run(sys.executable, "-c", example, cwd=ROOT)


def test_the_example_of_the_landing_page():
    """It prints both ends of the slider of the figure above it, and advice that helps."""
    ends, losses = zip(*(train(share) for share in (SHARES[0], SHARES[-1])), strict=True)
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

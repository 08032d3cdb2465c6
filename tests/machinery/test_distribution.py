"""What is installed: sdist and wheel, and the wheel beside its bare dependencies, where the README's example runs."""

import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
BARE = ("torch", "numpy", "scipy", "jaxtyping", "pytest", "hypothesis")


def run(*command, cwd):
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of an sdist of this tree and of a wheel built from that sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, cwd=ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    (wheel,) = built.glob("*.whl")
    return wheel


def test_the_index_would_take_both(built):
    files = sorted(built.iterdir())
    assert [path.name.endswith((".tar.gz", ".whl")) for path in files] == [True, True]
    run(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=built)


def test_the_wheel_holds_both_packages_with_their_data_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    packages = ("gnlib", "book/gnbook")
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", *packages, cwd=ROOT).split()
    present = {name.removeprefix("book/") for name in listed if (ROOT / name).is_file()}
    tables = {f"gnbook/kept/{path.name}" for path in (ROOT / "book/results").iterdir()}
    assert names == present | tables
    assert {"gnlib/py.typed", "gnlib/data/samples/mnist.npz", "gnbook/schematics/residual.svg"} <= names


def test_the_sdist_holds_what_the_wheel_is_built_from_and_the_tests(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "README.md", "book/results/deep-linear.csv", "tests/conftest.py"} <= names


def needed(names):
    """The distributions of this environment that these depend on, with themselves."""
    found, left = {}, list(names)
    while left:
        one = distribution(left.pop())
        if one.name not in found:
            found[one.name] = one
            plain = (r for r in one.requires or [] if "extra ==" not in r)
            left += [name for name in (re.match(r"[\w.-]+", r)[0] for r in plain) if is_installed(name)]
    return found.values()


def is_installed(name):
    try:
        return bool(distribution(name))
    except ModuleNotFoundError:
        return False


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory):
    """The interpreter of an environment with the wheel and, linked from here, what it and its tests on a GPU need."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    python = folder / "bin/python"
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    for one in needed(BARE):
        for top in {Path(path).parts[0] for path in one.files} - {"..", "__pycache__"}:
            link = packages / top
            if not link.exists():
                link.symlink_to(one.locate_file(top))
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    return python


def test_importing_the_library_imports_it_from_the_wheel_and_takes_hardly_longer_than_torch(bare):
    code = "from time import process_time as now; start = now(); import torch; middle = now(); import gnlib"
    code += "; print(gnlib.__file__, middle - start, now() - middle)"
    place, of_torch, of_gnlib = run(bare, "-I", "-c", code, cwd=bare.parent).split()
    assert Path(place).is_relative_to(bare.parents[1])
    assert float(of_gnlib) <= 0.5 * float(of_torch)


def test_the_example_of_the_readme_runs_beside_the_bare_dependencies(bare):
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    printed = run(bare, "-I", "-c", example, cwd=bare.parent)
    assert sum(map(bool, example.splitlines())) == 5
    assert re.search(r"n = 200, k = 10, p = 79510.* 1800 of 1800: .*\ncost  .*\n2 +1010 ", printed, re.DOTALL)

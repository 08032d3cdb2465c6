"""A chapter as Colab runs it: a Python with torch but without gnlib, a repository at an address.

The repository is a clone of this tree at a file:// address; `google.colab` is an empty stand-in.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jupytext
import pytest
from gnbook.checkout import ROOT, chapters
from gnbook.results import kept

NOTEBOOKS = [*chapters(".ipynb").values()]

pytestmark = [pytest.mark.nightly, pytest.mark.slow, pytest.mark.xdist_group("colab")]  # they share what they install


def run(*command, cwd):
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # this tree is not there
    done = subprocess.run(map(str, command), cwd=cwd, env=outside, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A clone of this tree, uncommitted changes and all, with its own address in it."""
    clone = tmp_path_factory.mktemp("repository")
    tracked = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate")
    for path in map(Path, run(*tracked, cwd=ROOT).splitlines()):
        if (ROOT / path).is_file():
            (clone / path.parent).mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, clone / path)
    run(sys.executable, "book/address.py", clone.as_uri(), cwd=clone)
    author = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    run("git", "init", "--quiet", cwd=clone)
    run("git", "add", "--all", cwd=clone)
    run("git", *author, "commit", "--quiet", "--message=test", cwd=clone)
    return clone


@pytest.fixture(scope="module")
def colab(tmp_path_factory):
    """The folder of a virtual environment that looks like Colab from the inside."""
    environment = tmp_path_factory.mktemp("colab") / "environment"
    run(sys.executable, "-m", "venv", environment, cwd=ROOT)
    there = "jaxtyping matplotlib numpy scipy torch ipykernel nbclient".split()
    run(environment / "bin/pip", "install", "--no-compile", "-c", "constraints.txt", *there, cwd=ROOT)
    packages = next(environment.glob("lib/python*/site-packages"))
    (packages / "google/colab").mkdir(parents=True)
    (packages / "google/colab/__init__.py").touch()
    (packages / "colab.pth").write_text("import google.colab\n")
    return environment


@pytest.fixture
def execute(repository, colab, tmp_path):
    """Run a notebook in that environment, alone in a folder, and return it with its outputs."""

    def execute(notebook):
        jupytext.write(notebook, tmp_path / "notebook.ipynb")
        run(colab / "bin/jupyter-execute", "--inplace", "notebook.ipynb", cwd=tmp_path)
        return jupytext.read(tmp_path / "notebook.ipynb")

    return execute


def torch_as_installed(colab):
    (record,) = colab.glob("lib/python*/site-packages/torch-*.dist-info/RECORD")
    return record, record.stat().st_mtime_ns


def test_the_install_cell_brings_gnlib_and_leaves_torch_alone(repository, colab, execute):
    before = torch_as_installed(colab)
    notebooks = [jupytext.read(repository / path.relative_to(ROOT)) for path in NOTEBOOKS]
    code_cells = [[cell for cell in nb.cells if cell.cell_type == "code"] for nb in notebooks]
    assert len({cells[0].source for cells in code_cells}) == 1  # so that one run speaks for all
    install, imported = notebooks[0].copy(), code_cells[0][1].copy()
    imported.source = "from gnbook import results\n\nprint(results.__file__, len(results.kept('deep-linear')))"
    install.cells = [code_cells[0][0], imported]
    (output,) = execute(install).cells[1].outputs
    path, rows = output.text.split()
    assert Path(path).is_relative_to(colab / "lib")
    assert int(rows) == len(kept("deep-linear"))  # the tables that the book keeps come along
    assert torch_as_installed(colab) == before


def test_a_chapter_runs_whole(repository, execute):
    chapter = repository / "notebooks/laboratory/piecewise-linear-maps.ipynb"  # it is short, and loads images
    executed = execute(jupytext.read(chapter))
    assert any(cell.get("outputs") for cell in executed.cells)

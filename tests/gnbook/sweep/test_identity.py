"""Names of runs: what makes a run another, and what does not."""

import shutil
from pathlib import Path

import nbformat
import pytest
from gnbook.sweep.identity import Identity, rooms_imported, rooms_of
from gnbook.sweep.notebook import read_notebook

from tests.gnbook.sweep.helpers import CELL, write_notebook

ROOT = Path(__file__).parents[3]


def test_only_what_decides_the_results_decides_the_name(tmp_path, monkeypatch):
    def name(**options):
        read = read_notebook(write_notebook(tmp_path / "tiny.ipynb", **options))
        return Identity(read)({**read.defaults, **parameters})

    parameters = {"seed": 1}
    first = name()
    assert name() == first
    assert name(prose="other prose") == first
    assert name(outputs=[nbformat.v4.new_output("stream", text="1")]) == first
    others = [name(code="print(seed + 1)"), name(cell=CELL.replace("width = 3", "width = 4"))]
    parameters = {"seed": 2}
    others.append(name())
    parameters = {"seed": 1}
    monkeypatch.setattr("gnbook.sweep.identity.data_digests", lambda: {"mnist": ["another"]})
    others.append(name())
    assert len({first, *others}) == 5


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A copy of gnlib, to be changed."""
    copy = shutil.copytree(ROOT / "book/gnbook", tmp_path / "book/gnbook", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr("gnbook.sweep.identity.BOOK", copy)
    (tmp_path / "notebooks").mkdir()
    return copy


PRUNING = "from gnbook.pruning.vgg import VGG"
COLAB = 'import sys\n\nif "google.colab" in sys.modules:\n    %pip install --quiet {source}'


@pytest.mark.parametrize(
    ("code", "changed", "stale"),
    [
        (PRUNING, "convolution/bounds.py", False),
        (PRUNING, "figures.py", False),
        (PRUNING, "sweep/grid.py", False),  # how a run comes about
        (PRUNING, "pruning/masks.py", True),
        (PRUNING, "shared/skips.py", True),
        ("from gnbook import pruning", "convolution/bounds.py", False),
        ("from gnbook import pruning", "pruning/masks.py", True),
        ("import gnbook.pruning.vgg as vgg", "convolution/bounds.py", False),
        ("def late():\n    import gnbook.pruning.vgg", "pruning/masks.py", True),
        ("from gnbook import figures, results", "pruning/masks.py", False),
        (COLAB, "pruning/masks.py", False),
        # Where the text does not show which rooms are used, all of them count.
        ("import importlib", "pruning/masks.py", True),
        ('__import__("gnbook.pruning.vgg")', "pruning/masks.py", True),
        ("import gnbook", "pruning/masks.py", True),
        ("from gnbook import *", "pruning/masks.py", True),
        ("from gnbook.unknown import f", "pruning/masks.py", True),
        ("%run helper.py", "pruning/masks.py", True),
    ],
)
def test_a_change_in_gnlib_makes_those_runs_old_that_may_use_it(code, changed, stale, library):
    read = read_notebook(write_notebook(library.parents[1] / "notebooks" / "chapter.ipynb", code=code))
    first = Identity(read)({})
    (library / changed).write_text("")
    assert (Identity(read)({}) != first) == stale


def test_for_a_notebook_that_is_no_chapter_of_the_book_all_rooms_count(library):
    read = read_notebook(write_notebook(library.parents[1] / "own.ipynb"))  # a module beside it may import any
    first = Identity(read)({})
    (library / "figures.py").write_text("")
    assert Identity(read)({}) == first
    (library / "pruning/masks.py").write_text("")
    assert Identity(read)({}) != first


PACKAGES = sorted(path.parent.name for path in (ROOT / "book/gnbook").glob("*/__init__.py"))
ROOMS = [name for name in PACKAGES if name != "sweep"]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_uses_no_other_so_that_a_run_is_known_by_those_that_its_notebook_names(room):
    sources = [path.read_text() for path in (ROOT / "book/gnbook" / room).rglob("*.py")]
    assert rooms_imported(sources) in ((), (room,))


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_text_of_each_chapter_shows_which_rooms_it_uses(path):
    assert rooms_of(read_notebook(path)) in ((), (path.stem.removesuffix("-further").replace("-", "_"),))

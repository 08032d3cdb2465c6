"""The digest of all that outputs depend on: what changes it, and what does not."""

import nbformat
import pytest
from gnbook import digest as module
from gnbook.checkout import chapters
from gnbook.digest import digest

TREE = {
    "gnlib/__init__.py": "from gnlib.ends import largest\nfrom gnlib.inner import total as total\nversion = 1",
    "gnlib/ends.py": 'import gnlib.checks\n\ndef largest(x):\n    """Return the largest."""\n    return max(x)',
    "gnlib/checks.py": "positive = 1",
    "gnlib/inner/__init__.py": "from gnlib.inner.sums import total as total\nfrom gnlib.inner.sums import mean as mean",
    "gnlib/inner/sums.py": "total = mean = sum",
    "gnbook/__init__.py": "",
    "gnbook/figures.py": "def schematic(name): ...",
    "gnbook/results.py": "def kept(name): ...",
    "gnbook/pruning/__init__.py": "",
    "gnbook/pruning/masks.py": "from gnbook.pruning.sizes import size",
    "gnbook/pruning/sizes.py": "size = 1",
    "gnbook/residual/__init__.py": "",
    "gnbook/residual/skips.py": "from ..pruning import sizes",
    "gnbook/sweep/__init__.py": "from gnbook.sweep.rows import record as record",
    "gnbook/sweep/rows.py": "record = 1",
    "kept/a.csv": "1",
    "kept/b.csv": "2",
    "drawn/a.svg": "1",
    "notebooks/beside.py": "import gnbook.pruning.masks",
    "constraints.txt": "torch==1",
}


@pytest.fixture
def tree(tmp_path, monkeypatch):
    for path, text in TREE.items():
        (tmp_path / path).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / path).write_text(text)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "PLACES", {"gnlib": (tmp_path,), "gnbook": (tmp_path,)})
    monkeypatch.setattr(module, "FILES", {"csv": (tmp_path / "kept",), "svg": (tmp_path / "drawn",)})
    return tmp_path


def changes(tree, code, path, text="changed = True", **options):
    """Whether the digest of this code is another when a file has this text."""
    first = digest([code], tree / "notebooks", **options)
    (tree / path).write_text(text)
    return digest([code], tree / "notebooks", **options) != first


COLAB = 'if "google.colab" in sys.modules:\n    %pip install --quiet {source}'


@pytest.mark.parametrize(
    ("code", "path", "stale"),
    [
        # What is imported, at whatever remove, however it is written.
        ("from gnbook.pruning.masks import size", "gnbook/pruning/masks.py", True),
        ("from gnbook.pruning.masks import size", "gnbook/pruning/sizes.py", True),
        ("from gnbook.pruning.masks import size", "gnbook/pruning/__init__.py", True),
        ("from gnbook.residual import skips", "gnbook/pruning/sizes.py", True),
        ("from gnbook.residual import skips", "gnbook/pruning/masks.py", False),
        ("def late():\n    import gnbook.pruning.masks", "gnbook/pruning/masks.py", True),
        ("import beside", "gnbook/pruning/sizes.py", True),
        ("import beside", "notebooks/beside.py", True),
        ("import json", "notebooks/beside.py", False),
        # Of a package that names what others define, what is used.
        ("import gnlib\ngnlib.largest", "gnlib/ends.py", True),
        ("import gnlib\ngnlib.largest", "gnlib/checks.py", True),
        ("import gnlib\ngnlib.largest", "gnlib/inner/sums.py", False),
        ("import gnlib as g\ng.total", "gnlib/inner/sums.py", True),
        ("from gnlib import largest", "gnlib/inner/sums.py", False),
        # Where the text does not show what is used, everything.
        ("import gnlib\nprint(gnlib)", "gnlib/inner/sums.py", True),
        ("import gnlib\ngnlib.unknown", "gnlib/inner/sums.py", True),
        ("from gnbook.unknown import f", "gnbook/residual/skips.py", True),
        ("from gnlib import *", "gnlib/inner/sums.py", True),
        *[("%run helper.py", path, True) for path in ("gnlib/inner/sums.py", "gnbook/residual/skips.py")],
        (COLAB, "gnlib/ends.py", False),
        # How a run of a sweep comes about.
        ("from gnbook import sweep\nsweep.record([])", "gnbook/sweep/rows.py", False),
        # Files whose names stand in the code as texts.
        ("from gnbook import results\nresults.kept('a')", "kept/a.csv", True),
        ("name = 'a'\nresults.kept(name)", "kept/a.csv", True),
        ("results.kept('a')", "kept/b.csv", False),
        ("figures.schematic('a')", "drawn/a.svg", True),
        ("1", "constraints.txt", True),
    ],
)
def test_a_change_counts_where_it_may_change_an_output(code, path, stale, tree):
    assert changes(tree, code, path) is stale


def test_a_name_that_stands_for_another_object_counts(tree):
    other = TREE["gnlib/__init__.py"].replace("total as total", "mean as total")
    assert changes(tree, "import gnlib\ngnlib.total", "gnlib/__init__.py", other)


@pytest.mark.parametrize(
    ("before", "after", "stale"),
    [
        ("x = 1", "x = 1  # a remark", False),
        ("x = 1", '"""A module."""\nx = (1)', False),
        ("def f():\n    return 1", 'def f():\n    """Return."""\n\n    return 1', False),
        ("x = f'{1:{2}}'", "x = f'{1:{2}}' ''", False),
        ("x = 1", "x = 1.0", True),
        ("f('')", "f()", True),
        ("x: int = 1", "x = 1", True),
        ("def f(a, b=1): ...", "def f(a, *, b=1): ...", True),
    ],
)
def test_a_module_counts_without_its_remarks(before, after, stale, tree):
    (tree / "gnlib/ends.py").write_text(before)
    assert changes(tree, "import gnlib.ends", "gnlib/ends.py", after) is stale


@pytest.mark.parametrize(
    ("path", "stale"),
    [("gnlib/ends.py", True), ("gnbook/figures.py", False), ("kept/a.csv", False), ("constraints.txt", False)],
)
def test_of_recorded_rows_drawings_tables_and_locked_versions_do_not_count(path, stale, tree):
    code = "import gnlib\nfrom gnbook import figures, results\nresults.kept('a')\ngnlib.largest\nfigures.panels()"
    assert changes(tree, code, path, recorded=True) is stale


@pytest.mark.parametrize("path", chapters(".ipynb").values(), ids=chapters())
def test_the_text_of_each_notebook_shows_what_it_imports(path):
    """Otherwise each change anywhere would execute it again."""
    code = [cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
    other = "random_layers" if path.stem.startswith("residual") else "residual"
    found = module.Dependencies(path.parent)
    found.add_cells(code)
    assert found.modules and not any(name.startswith(f"gnbook.{other}") for name in found.modules)

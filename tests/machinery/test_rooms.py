"""The house: a small core that stands alone, and a room for each chapter, which knows the core and itself."""

import ast
import subprocess
import sys
from pathlib import Path

import jupytext
import pytest

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "gnlib"
CHAPTERS = LIBRARY / "chapters"
APART = ("gnbook", "gnlib.diagnosis", "gnlib.jacobian", "gnbook.sweep", "gnlib.data.samples")
FOR_ALL = tuple(f"gnbook.{name}" for name in ("figures", "moving", "results", "shared", "tables"))
NETWORKS = ("gnlib.condition", "gnlib.gauss_newton", "gnlib.linear.network", "gnlib.jacobian", "torch.nn")

ROOMS = sorted(path.parent for path in CHAPTERS.glob("*/__init__.py") if path.parent.name != "shared")
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.md"))


def room_of(notebook):
    """A chapter and the page of its further experiments, `<slug>-further`, share a room."""
    return notebook.stem.removesuffix("-further").replace("-", "_")


def names(source, package=()):
    """What this code imports or spells out, dotted; `package` is the folder that holds it."""
    found, spelt = set(), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *filter(None, [node.module])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute):  # after `import gnlib` alone, `gnbook.results.kept`
            spelt.add(ast.unparse(node))
    return found | {name for name in spelt if not any(longer.startswith(f"{name}.") for longer in spelt)}


def within(name, *packages):
    return any(name == package or name.startswith(package + ".") for package in packages)


def module(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def modules(folder, *, without=()):
    return [path for path in sorted(folder.rglob("*.py")) if not within(module(path), *without)]


def imports(paths, *packages):
    """Which of the files import one of these packages, and what of it."""
    return [
        f"{path.relative_to(ROOT)}: {name}"
        for path in paths
        for name in sorted(names(path.read_text(), path.relative_to(ROOT).parent.parts))
        if within(name, *packages)
    ]


def code(notebook):
    """What a notebook runs, less the lines that are IPython's."""
    cells = [cell.source for cell in jupytext.read(notebook).cells if cell.cell_type == "code"]
    lines = "\n".join(cells).splitlines()
    return "\n".join("pass" if line.lstrip()[:1] in {"%", "!"} else line for line in lines)


CORE = modules(LIBRARY, without=APART)


@pytest.mark.parametrize(
    "line",
    ["from torch import nn", "import torch.nn.functional", "torch.nn.Linear(1, 2)", "from ..models import linear"],
)
def test_no_way_to_import_is_overlooked(line):
    source = f"def later():\n    {line}"
    assert any(within(name, *NETWORKS) for name in names(source, ("gnlib", "spectrum")))


def test_the_core_is_small():
    """It is what `import gnlib` needs; commands, such as the one that fetches whole training sets, are not."""
    loaded = "import sys, gnlib; print(*(m.__file__ for n, m in sys.modules.items() if n.partition('.')[0] == 'gnlib'))"
    found = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True, cwd=ROOT)
    files = {Path(file) for file in found.stdout.split()}
    fetching = {LIBRARY / name for name in ("data/__main__.py", "data/fetch.py", "files.py", "progress.py")}
    commands = fetching | {LIBRARY / "__main__.py"}
    assert files | commands == set(CORE) and not files & commands
    assert sum(len(path.read_text().splitlines()) for path in files) <= 4000


def test_the_core_stands_alone():
    others = ("gnbook", "gnbook.sweep", "gnlib.data.samples", "pandas", "dask", "papermill")
    assert imports(CORE, *others) == []


def test_only_a_module_needs_what_takes_modules_apart():
    """The front door and the one function for all operands know it, and load it when a module is handed to them."""
    room = modules(LIBRARY / "modules")
    assert sum(len(path.read_text().splitlines()) for path in room) <= 3000
    assert imports(room, "gnbook", "gnbook.sweep", "gnlib.data.samples", "pandas", "dask", "papermill") == []
    assert {line.partition(":")[0] for line in imports(CORE, "gnlib.jacobian")} == {
        "gnlib/__init__.py",
        "gnlib/condition.py",
    }


def test_a_diagnosis_needs_the_core_and_what_takes_modules_apart():
    room = modules(LIBRARY / "diagnosis")
    assert sum(len(path.read_text().splitlines()) for path in room) <= 2600
    assert imports(room, "gnbook", "gnbook.sweep", "gnlib.data.samples", "pandas", "dask", "papermill") == []
    assert imports(modules(LIBRARY / "modules"), "gnlib.diagnosis") == []
    known = {line.partition(":")[0] for line in imports(CORE, "gnlib.diagnosis")}
    assert known == {"gnlib/__init__.py", "gnlib/__main__.py"}


def test_the_eigen_core_is_linear_algebra():
    assert imports(modules(LIBRARY / "spectrum"), *NETWORKS) == []


@pytest.mark.parametrize("room", ROOMS, ids=lambda path: path.name)
def test_a_room_needs_the_core_and_what_chapters_share(room):
    others = [f"gnbook.{other.name}" for other in ROOMS if other != room]
    assert imports(modules(room), "gnbook.sweep", *others) == []


def test_what_chapters_share_needs_no_room():
    shared = [path for path in modules(CHAPTERS) if within(module(path), *FOR_ALL)]
    assert shared
    assert imports(shared, "gnbook.sweep", *(f"gnbook.{room.name}" for room in ROOMS)) == []


def test_a_sweep_knows_no_chapter():
    found = imports(modules(LIBRARY / "sweep"), "gnbook")
    allowed = ("gnbook.figures", "gnbook.results")
    assert [line for line in found if not within(line.partition(": ")[2], *allowed)] == []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_needs_no_room_but_its_own(notebook):
    own = f"gnbook.{room_of(notebook)}"
    assert [
        name
        for name in sorted(names(code(notebook)))
        if within(name, "gnbook", "gnbook.sweep") and not within(name, own, *FOR_ALL) and name != "gnbook.sweep"
    ] == []


def test_each_room_has_its_notebook():
    assert [room.name for room in ROOMS if room.name not in map(room_of, NOTEBOOKS)] == []

"""The house: nothing in it goes in circles, the library knows no chapter, and no chapter another."""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import jupytext
import pytest
from gnbook.checkout import chapters

ROOT = Path(__file__).parents[2]
LIBRARY, BOOK = ROOT / "gnlib", ROOT / "book/gnbook"
FOR_ALL = {"figures", "moving", "results", "shared", "tables"}  # what every chapter may use
CHAPTERS = sorted(
    path.parent.name for path in BOOK.glob("*/__init__.py") if path.parent.name not in FOR_ALL | {"sweep"}
)
NOTEBOOKS = chapters()


def imported(source, package=()):
    """Return the dotted names that a source imports or spells out; `package` is the folder that holds it."""
    named, spelt = set(), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *filter(None, [node.module])])
            named |= {f"{module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute):  # after `import gnbook` alone, `gnbook.results.kept`
            spelt.add(ast.unparse(node))
    return named | {name for name in spelt if not any(longer.startswith(f"{name}.") for longer in spelt)}


def within(name, *packages):
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def modules(folder):
    """Return the modules of a package by their dotted names, with the names that each imports."""
    found = {}
    for path in folder.rglob("*.py"):
        package = path.relative_to(folder.parent).parent.parts
        name = ".".join(package if path.stem == "__init__" else (*package, path.stem))
        found[name] = imported(path.read_text(), package)
    return found


def graph(imports):
    """Return which modules of a package import which: of a dotted name the longest part that is a module."""

    def module(name):
        while name and name not in imports:
            name = name.rpartition(".")[0]
        return name

    return {name: {module(other) for other in others} - {name, ""} for name, others in imports.items()}


def circle(edges):
    """Return one circle of a graph, or None."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return error.args[1]


def folders(edges):
    """Return the graph of folders, those that lie right in the package, and of the modules beside them."""

    def room(name):
        top = ".".join(name.split(".")[:2])
        return top if any(other.startswith(f"{top}.") for other in edges) else name

    between = {room(name): set() for name in edges}
    for name, others in edges.items():
        between[room(name)] |= {room(other) for other in others} - {room(name)}
    return between


def crossings(imports, *packages):
    """Return the imports of one of these packages, as text."""
    return sorted(
        f"{name}: {other}" for name, others in imports.items() for other in others if within(other, *packages)
    )


def code(notebook):
    """Return what a notebook runs, less the lines that are IPython's."""
    cells = [cell.source for cell in jupytext.read(notebook).cells if cell.cell_type == "code"]
    lines = "\n".join(cells).splitlines()
    return "\n".join("pass" if line.lstrip()[:1] in {"%", "!"} else line for line in lines)


@pytest.fixture
def package(tmp_path):
    """Write modules by their dotted names, and return what `modules` sees of them."""

    def write(**sources):
        for name, source in sources.items():
            path = tmp_path / "p" / f"{name.replace('__in__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
        return modules(tmp_path / "p")

    return write


@pytest.mark.parametrize(
    "line",
    ["from gnbook import results", "import gnbook.results", "gnbook.results.kept('a')", "from ..gnbook import results"],
)
def test_no_way_to_import_is_overlooked(line):
    assert any(within(name, "gnbook.results") for name in imported(f"def later():\n    {line}", ("gnlib",)))


def test_a_circle_is_seen_between_modules_and_between_folders_and_by_types_alone(package):
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.one.a import f"
    edges = graph(package(one__in__a="from p.two import b", two__in__b=typed))
    assert sorted(set(circle(edges))) == ["p.one.a", "p.two.b"]
    edges = graph(package(two__in__b="from p.one.c import g", one__in__c="g = 1"))
    assert circle(edges) is None and sorted(set(circle(folders(edges)))) == ["p.one", "p.two"]
    assert circle(folders(graph(package(two__in__b="")))) is None


EDGES, BOOKS = graph(modules(LIBRARY)), modules(BOOK)


def part(*names):
    """Return the modules of the book that lie in one of these folders, or are one of these."""
    found = {
        module: others for module, others in BOOKS.items() if within(module, *(f"gnbook.{name}" for name in names))
    }
    assert found
    return found


def test_the_modules_of_the_library_import_each_other_in_no_circle():
    assert circle(EDGES) is None


def test_nor_do_its_folders():
    rooms = folders(EDGES)
    assert {"gnlib.eigen", "gnlib.jacobian", "gnlib.linear", "gnlib.diagnosis", "gnlib.data"} <= set(rooms)
    assert circle(rooms) is None


def test_the_library_knows_nothing_of_the_book():
    assert crossings(modules(LIBRARY), "gnbook") == []


def test_importing_the_library_loads_neither_the_book_nor_what_few_need():
    loaded = "import sys, gnlib; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "gnlib" in done.stdout.split()
    heavy = {"gnbook", "pandas", "dask", "papermill", "matplotlib", "pooch"}
    assert not heavy & set(done.stdout.split())


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_uses_the_library_and_what_is_shared(chapter):
    others = [f"gnbook.{other}" for other in CHAPTERS if other != chapter]
    assert crossings(part(chapter), "gnbook.sweep", *others) == []


def test_what_is_shared_uses_no_chapter():
    assert crossings(part(*FOR_ALL), "gnbook.sweep", *(f"gnbook.{chapter}" for chapter in CHAPTERS)) == []


def test_a_sweep_knows_no_chapter():
    assert crossings(part("sweep"), "gnbook.shared", *(f"gnbook.{chapter}" for chapter in CHAPTERS)) == []


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_needs_no_chapter_but_its_own(name):
    """And a lesson nothing of the book but the style of its figures, and sliders."""
    folder, _, stem = name.rpartition("/")
    own = stem.removesuffix("-further").replace("-", "_")
    allowed = [f"gnbook.{name}" for name in ((own, *FOR_ALL) if folder else ("figures", "moving"))]
    used = [name for name in imported(code(NOTEBOOKS[name])) if within(name, "gnbook")]
    assert [name for name in used if not within(name, *allowed) and name != "gnbook.sweep"] == []

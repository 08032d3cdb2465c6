"""The house: nothing in it goes in circles, the library knows no chapter, and no chapter another."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter

import jupytext
import pytest
from gnbook.checkout import ROOT, chapters

FOR_ALL = {"figures", "moving", "results", "shared", "tables"}  # what every chapter may use
CHAPTERS = sorted({path.parent.name for path in ROOT.glob("book/gnbook/*/__init__.py")} - FOR_ALL - {"sweep"})
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


LIBRARY, BOOK = modules(ROOT / "gnlib"), modules(ROOT / "book/gnbook")


def longest(name, known):
    """Return the longest part of a dotted name that is known."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def crossings(imports, *packages):
    """Return the imports of one of these packages, as text."""
    return [f"{name}: {other}" for name, others in imports.items() for other in others if within(other, *packages)]


def part(*names):
    """Return the modules of the book that lie in one of these folders, or are one of these."""
    some = {name: of for name, of in BOOK.items() if within(name, *(f"gnbook.{each}" for each in names))}
    assert some
    return some


def test_neither_the_modules_of_the_library_nor_its_folders_import_each_other_in_a_circle():
    edges = {name: {longest(other, LIBRARY) for other in others} - {name, ""} for name, others in LIBRARY.items()}
    TopologicalSorter(edges).prepare()
    rooms = {path.parent.name for path in ROOT.glob("gnlib/*/__init__.py")}
    room_of = {name: next((room for room in rooms if within(name, f"gnlib.{room}")), name) for name in edges}
    between = {room: set() for room in room_of.values()}
    for name, others in edges.items():
        between[room_of[name]] |= {room_of[other] for other in others} - {room_of[name]}
    assert rooms < {*between}
    TopologicalSorter(between).prepare()


def test_importing_the_library_loads_neither_the_book_nor_what_few_need():
    assert crossings(LIBRARY, "gnbook") == []
    loaded = "import sys, gnlib; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "gnlib" in done.stdout.split()
    heavy = {"gnbook", "pandas", "dask", "papermill", "matplotlib", "pooch"}
    assert not heavy & set(done.stdout.split())


def test_a_chapter_uses_the_library_and_what_is_shared_and_that_no_chapter_nor_does_a_sweep():
    rooms = {chapter: f"gnbook.{chapter}" for chapter in CHAPTERS}
    for chapter in CHAPTERS:
        others = {**rooms, chapter: "gnbook.sweep"}.values()
        assert crossings(part(chapter), *others) == []
    assert crossings(part(*FOR_ALL), "gnbook.sweep", *rooms.values()) == []
    assert crossings(part("sweep"), "gnbook.shared", *rooms.values()) == []


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_needs_no_chapter_but_its_own(name):
    """And a lesson nothing of the book but the style of its figures, and sliders."""
    cells = [cell.source for cell in jupytext.read(NOTEBOOKS[name]).cells if cell.cell_type == "code"]
    lines = "\n".join(cells).splitlines()
    code = "\n".join("pass" if line.lstrip()[:1] in {"%", "!"} else line for line in lines)
    folder, _, stem = name.rpartition("/")
    own = stem.removesuffix("-further").replace("-", "_")
    allowed = [f"gnbook.{name}" for name in ((own, *FOR_ALL) if folder else ("figures", "moving"))]
    used = [name for name in imported(code) if within(name, "gnbook")]
    assert [name for name in used if not within(name, *allowed) and name != "gnbook.sweep"] == []

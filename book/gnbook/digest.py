"""Digest everything that the outputs of a notebook depend on: outputs are kept while their digest stays the same.

The digest covers

- the code of the cells,
- the modules of `gnlib` and `gnbook` that the notebook imports, directly or not, and modules beside the notebook,
- the kept tables and schematic drawings that it names,
- the versions in `constraints.txt`.

A module counts as its syntax tree, without comments and docstrings. The bundled images count by their checksums, which
are constants in `gnlib.data`. A package that re-exports names counts by the modules of the names that are used.
Where the text does not show the imports, all modules count.
"""

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from gnbook.checkout import BOOK, ROOT
from gnbook.results import FOLDERS as TABLES

PLACES = {"gnlib": (ROOT, BOOK.parent), "gnbook": (BOOK.parent,)}  # in a checkout, and where both are installed

DRAWING = ("gnbook.figures", "gnbook.moving", "gnbook.results", "gnbook.tables")
"""Modules that draw and read. Rows that a notebook records in a sweep do not depend on them."""

SWEEP = "gnbook.sweep"
"""The package that starts runs. Results do not depend on it."""

READING = {
    "gnbook.results.kept": (TABLES, "csv"),
    "gnbook.figures.table": (TABLES, "csv"),
    "gnbook.figures.schematic": ((BOOK / "schematics",), "svg"),
}
"""Functions that read a file named by their first argument: the folders and the ending of such files."""

IMPORTING = re.compile(
    r"importlib\.(import_module|reload|machinery\b.*|util\.(module_from|spec_from).*|(util\.)?\*)"
    r"|(runpy|pkgutil)\..+|__import__|exec|eval"
)
"""Names of functions that import modules which the text of the code does not show."""

INSTALLATION = re.compile(r"%pip install .*")
"""A command of IPython, in the first cell of each chapter, that imports nothing."""


@dataclass
class Source:
    """The imports of a module, read from its syntax tree. Names are dotted: `gnlib.data.load`."""

    tree: str = ""  # SHA-256 of the tree; of a package without its import statements
    bound: dict[str, str] = field(default_factory=dict)  # the full names of the names that imports bind
    defined: set[str] = field(default_factory=set)  # names that the module defines itself
    imports: set[str] = field(default_factory=set)  # full names in import statements
    # of imported objects and their attributes in the code; `gnlib.*` where `gnlib` is used without one
    uses: set[str] = field(default_factory=set)
    # pairs of a function in READING and its argument; None if not literal
    reads: set[tuple[str, str | None]] = field(default_factory=set)


def digest(cells: Iterable[str], folder: Path, *, recorded: bool = False) -> str:
    """Return the SHA-256 of everything that the outputs of a notebook depend on.

    With `recorded` it digests only what decides the rows that the notebook records in a sweep: drawing does not, kept
    tables are made by sweeps, and a cluster may have other versions than the locked ones: each run says its own.
    """
    cells = list(cells)
    dependencies = Dependencies(folder, without=DRAWING if recorded else ())
    dependencies.add_cells(cells)
    parts = {"cells": cells, "modules": dependencies.modules, "names": sorted(dependencies.names)}
    if not recorded:
        parts["files"] = dict(_files(dependencies.reads))
        locked = ROOT / "constraints.txt"
        parts["versions"] = locked.read_text() if locked.exists() else None
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class Dependencies:
    """The modules that a notebook depends on, found by following imports.

    `modules` has the SHA-256 of the syntax tree of each module, `names` re-exported names that are used, with what they
    stand for (`gnlib.load = gnlib.data.load`), `reads` the files that are read, as in `Source`.
    """

    def __init__(self, folder: Path, without: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.without = (*without, SWEEP)
        self.modules: dict[str, str] = {}
        self.names: set[str] = set()
        self.reads: set[tuple[str, str | None]] = set()
        self._seen: set[str] = set()
        self._places: dict[str, Path | None] = {}
        self._sources: dict[Path, Source] = {}

    def add_cells(self, cells: Iterable[str]) -> None:
        """Add the modules that the code of a notebook imports."""
        text = "\n".join(INSTALLATION.sub("pass", cell) for cell in cells)
        try:
            tree = ast.parse(text)
        except SyntaxError:  # another command of IPython, which may run anything
            self._follow_all()
        else:
            self._follow_source(_source(tree, package=(), is_package=False))

    def _follow_source(self, source: Source, *, is_package: bool = False) -> None:
        self.reads |= source.reads
        for name in source.uses if is_package else source.imports | source.uses:
            self._follow(name)

    def _follow(self, name: str) -> None:
        """Follow a full name to the module that defines it."""
        if name in self._seen:
            return
        self._seen.add(name)
        if IMPORTING.fullmatch(name):
            self._follow_all()
        first, *rest = name.split(".")
        if first not in self._places:
            self._places[first] = self._find(first)
        if (path := self._places[first]) is not None:
            self._walk(first, path, rest)

    def _walk(self, module: str, path: Path, rest: list[str]) -> None:
        """Add a module, and of a package the module that `rest` names in it."""
        if module in self.without:
            return
        source = self._add(module, path)
        if path.name != "__init__.py" or not rest:
            return
        name, *rest = rest
        if name == "*":
            self._follow_package(module, path.parent)
            return
        inner, target = _module(path.parent / name), source.bound.get(name)
        if inner is not None:
            self._walk(f"{module}.{name}", inner, rest)
        if target is not None and not f"{target}.".startswith(f"{module}.{name}."):
            self.names.add(f"{module}.{name} = {target}")
            self._follow(".".join([target, *rest]))
        elif inner is None and name not in source.defined:
            self._follow_all()

    def _add(self, module: str, path: Path) -> Source:
        if path not in self._sources:
            is_package = path.name == "__init__.py"
            package = tuple(module.split("."))[: None if is_package else -1]
            stat = path.stat()
            source = self._sources[path] = _read(path, stat.st_mtime_ns, stat.st_size, package, is_package)
            self.modules[module] = source.tree
            self._follow_source(source, is_package=is_package)
        return self._sources[path]

    def _follow_package(self, package: str, folder: Path) -> None:
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join([package, *parts[: -1 if parts[-1] == "__init__" else None]])
            if not any(f"{name}.".startswith(f"{other}.") for other in self.without) and parts[-1] != "__main__":
                self._add(name, path)

    def _follow_all(self) -> None:
        for package in PLACES:
            self._follow(f"{package}.*")

    def _find(self, name: str) -> Path | None:
        for place in (self.folder, *PLACES.get(name, ())):
            if (path := _module(place / name)) is not None:
                return path
        return None


def _module(path: Path) -> Path | None:
    """Return the file of a module or of a package, of which the path lacks the ending."""
    files = (path / "__init__.py", path.with_name(f"{path.name}.py"))
    return next((file for file in files if file.is_file()), None)


@cache
def _read(path: Path, changed: int, size: int, package: tuple[str, ...], is_package: bool) -> Source:
    """Read a module again only when it has changed."""
    return _source(ast.parse(path.read_bytes()), package, is_package)


def _source(tree: ast.Module, package: tuple[str, ...], is_package: bool) -> Source:
    source = Source()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            source.imports.update(alias.name for alias in node.names)
            for alias in node.names:
                first = alias.name.partition(".")[0]
                source.bound[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *filter(None, [node.module])])
            source.imports.update(f"{module}.{alias.name}" for alias in node.names)
            source.bound.update({alias.asname or alias.name: f"{module}.{alias.name}" for alias in node.names})
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            if ast.get_docstring(node, clean=False) is not None:
                del node.body[0]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            source.defined.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            source.defined |= {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    _note_uses(tree, source)
    if is_package:
        tree.body = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    source.tree = hashlib.sha256(json.dumps(_plain(tree)).encode()).hexdigest()
    return source


def _note_uses(node: ast.AST, source: Source) -> None:
    """Note the uses of imported names in a part of a tree."""
    if isinstance(node, ast.Call) and (name := _dotted(node.func, source.bound)) in READING:
        first = node.args[0] if node.args else None
        literal = isinstance(first, ast.Constant) and isinstance(first.value, str)
        source.reads.add((name, first.value if literal else None))
        source.uses.add(name)
        for argument in (*node.args, *node.keywords):
            _note_uses(argument, source)
    elif isinstance(node, ast.Attribute) and (name := _dotted(node, source.bound)):
        source.uses.add(name)
        if name in READING:  # passed on, and called with any argument
            source.reads.add((name, None))
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        name = source.bound.get(node.id)
        if name is not None:
            source.uses.add(f"{name}.*")
        elif IMPORTING.fullmatch(node.id):
            source.uses.add(node.id)
        if name in READING:
            source.reads.add((name, None))
    else:
        for child in ast.iter_child_nodes(node):
            _note_uses(child, source)


def _dotted(node: ast.AST, bound: Mapping[str, str]) -> str | None:
    """Return the full name of a name with attributes, or None if no import binds it."""
    rest = []
    while isinstance(node, ast.Attribute):
        rest.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in bound:
        return None
    return ".".join([bound[node.id], *reversed(rest)])


def _plain(node: object) -> object:
    """Return a tree as lists without empty fields, which depend on the version of Python."""
    if isinstance(node, list):
        return [_plain(each) for each in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.JoinedStr):  # Python 3.12.1 adds empty text behind a nested format
        node.values = [value for value in node.values if getattr(value, "value", None) != ""]
    fields = [[name, _plain(value)] for name, value in ast.iter_fields(node) if value is not None and value != []]
    return [type(node).__name__, *fields]


def _files(reads: Iterable[tuple[str, str | None]]) -> Iterator[tuple[str, str]]:
    """Name the files that are read, with their digests."""
    for function, argument in reads:
        folders, ending = READING[function]
        for folder in folders:
            for path in folder.glob(f"{argument or '*'}.{ending}"):
                yield path.name, hashlib.sha256(path.read_bytes()).hexdigest()

"""Digest everything that the outputs of a notebook depend on: outputs are kept while their digest stays the same.

The digest covers

- the code of the cells,
- the modules of `gnlib` and `gnbook` that the notebook imports, directly or not, and modules beside the notebook,
- the kept tables and schematic drawings whose names stand in all this code as texts,
- the versions in `constraints.txt`.

A module counts as its syntax tree, without comments and docstrings. The bundled images count by their checksums, which
are constants in `gnlib.data`. A package that re-exports names counts by the modules of the names that are used.
Where the text does not show the imports, all modules count; what is imported by a name in a text is not seen.
"""

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gnbook.checkout import BOOK, ROOT
from gnbook.results import FOLDERS as TABLES

PLACES = {"gnlib": (ROOT, BOOK.parent), "gnbook": (BOOK.parent,)}  # in a checkout, and where both are installed
FILES = {"csv": TABLES, "svg": (BOOK / "schematics",)}  # the folders of files that are read by their names

DRAWING = ("gnbook.figures", "gnbook.moving", "gnbook.results", "gnbook.tables")
"""Modules that draw and read. Rows that a notebook records in a sweep do not depend on them."""

SWEEP = "gnbook.sweep"
"""The package that starts runs. Results do not depend on it."""

INSTALLATION = re.compile(r"%pip install .*")
"""A command of IPython, in the first cell of each chapter, that imports nothing."""


class Source(NamedTuple):
    """What a module imports, read from its syntax tree. Names are dotted: `gnlib.data.load`."""

    tree: str  # SHA-256 of the tree; of a package without its import statements
    bound: dict[str, str]  # the full names of the names that imports bind
    imports: set[str]  # full names in import statements
    uses: set[str]  # of imported objects and their attributes; `gnlib.*` where `gnlib` is used without one
    texts: set[str]


def digest(cells: Iterable[str], folder: Path, *, recorded: bool = False) -> str:
    """Return the SHA-256 of everything that the outputs of a notebook depend on.

    With `recorded` it digests only what decides the rows that the notebook records in a sweep: drawing does not, kept
    tables are made by sweeps, and a cluster may have other versions than the locked ones: each run says its own.
    """
    cells = list(cells)
    found = Dependencies(folder, without=DRAWING if recorded else ())
    found.add_cells(cells)
    parts = {"cells": cells, "modules": found.modules, "names": sorted(found.names)}
    if not recorded:
        there = [path for ending, folders in FILES.items() for each in folders for path in each.glob(f"*.{ending}")]
        parts["files"] = {path.name: _sha(path.read_bytes()) for path in there if path.stem in found.texts}
        locked = ROOT / "constraints.txt"
        parts["versions"] = locked.read_text() if locked.exists() else None
    return _sha(json.dumps(parts, sort_keys=True).encode())


class Dependencies:
    """The modules that a notebook depends on, found by following imports.

    `modules` has the SHA-256 of the syntax tree of each module, `names` re-exported names that are used, with what they
    stand for (`gnlib.load = gnlib.data.load`), `texts` all texts in the code.
    """

    def __init__(self, folder: Path, without: tuple[str, ...] = ()) -> None:
        self.folder, self.without = folder, (*without, SWEEP)
        self.modules: dict[str, str] = {}
        self.names: set[str] = set()
        self.texts: set[str] = set()
        self._seen: set[str] = set()

    def add_cells(self, cells: Iterable[str]) -> None:
        """Add the modules that the code of a notebook imports."""
        try:
            tree = ast.parse("\n".join(INSTALLATION.sub("pass", cell) for cell in cells))
        except SyntaxError:  # another command of IPython, which may run anything
            for package in PLACES:
                self._follow(f"{package}.*")
        else:
            self._follow_source(_source(tree, package=(), is_package=False))

    def _follow_source(self, source: Source, *, is_package: bool = False) -> None:
        self.texts |= source.texts
        for name in source.uses if is_package else source.imports | source.uses:
            self._follow(name)

    def _follow(self, name: str) -> None:
        """Follow a full name to the module that defines it."""
        if name in self._seen:
            return
        self._seen.add(name)
        first, *rest = name.split(".")
        for place in (self.folder, *PLACES.get(first, ())):
            if (path := _module(place / first)) is not None:
                self._walk(first, path, rest)
                break

    def _walk(self, module: str, path: Path, rest: list[str]) -> None:
        """Add a module, and of a package the module that `rest` names in it."""
        if module in self.without:
            return
        source = self._add(module, path)
        if path.name != "__init__.py" or not rest:
            return
        name, *rest = rest
        inner, target = _module(path.parent / name), source.bound.get(name)
        if inner is not None:
            self._walk(f"{module}.{name}", inner, rest)
        if target is not None and not f"{target}.".startswith(f"{module}.{name}."):
            self.names.add(f"{module}.{name} = {target}")
            self._follow(".".join([target, *rest]))
        elif inner is None:  # `*`, or a name that is not imported there
            self._follow_package(module, path.parent)

    def _add(self, module: str, path: Path) -> Source:
        is_package, stat = path.name == "__init__.py", path.stat()
        package = tuple(module.split("."))[: None if is_package else -1]
        source = _read(path, stat.st_mtime_ns, stat.st_size, package, is_package)
        if module not in self.modules:
            self.modules[module] = source.tree
            self._follow_source(source, is_package=is_package)
        return source

    def _follow_package(self, package: str, folder: Path) -> None:
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join([package, *parts[: -1 if parts[-1] == "__init__" else None]])
            if not any(f"{name}.".startswith(f"{other}.") for other in self.without) and parts[-1] != "__main__":
                self._add(name, path)


def _module(path: Path) -> Path | None:
    """Return the file of a module or of a package, of which the path lacks the ending."""
    files = (path / "__init__.py", path.with_name(f"{path.name}.py"))
    return next((file for file in files if file.is_file()), None)


@cache
def _read(path: Path, changed: int, size: int, package: tuple[str, ...], is_package: bool) -> Source:
    """Read a module again only when it has changed."""
    return _source(ast.parse(path.read_bytes()), package, is_package)


def _source(tree: ast.Module, package: tuple[str, ...], is_package: bool) -> Source:
    bound, imports = {}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports.update(alias.name for alias in node.names)
            for alias in node.names:
                first = alias.name.partition(".")[0]
                bound[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *filter(None, [node.module])])
            imports.update(f"{module}.{alias.name}" for alias in node.names)
            bound.update({alias.asname or alias.name: f"{module}.{alias.name}" for alias in node.names})
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            if ast.get_docstring(node, clean=False) is not None:
                del node.body[0]
    texts = {node.value for node in ast.walk(tree) if isinstance(getattr(node, "value", None), str)}
    uses = set(_uses(tree, bound))
    if is_package:
        tree.body = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    return Source(_sha(json.dumps(_plain(tree)).encode()), bound, imports, uses, texts)


def _uses(node: ast.AST, bound: Mapping[str, str]) -> Iterator[str]:
    """Yield the full names of imported objects, with their attributes, in a part of a tree."""
    rest, inner = [], node
    while isinstance(inner, ast.Attribute):
        rest.append(inner.attr)
        inner = inner.value
    if isinstance(inner, ast.Name) and inner.id in bound and isinstance(inner.ctx, ast.Load):
        yield ".".join([bound[inner.id], *reversed(rest or ["*"])])
    else:
        for child in ast.iter_child_nodes(node):
            yield from _uses(child, bound)


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


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

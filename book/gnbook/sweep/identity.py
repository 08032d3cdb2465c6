"""What makes two runs the same run."""

import ast
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from gnbook.sweep.notebook import Notebook

BOOK = Path(__file__).parents[1]

NOT_RECORDED = {"figures", "moving", "results", "tables"}
"""Modules of `gnbook` that draw and read: nothing that a notebook records comes from them."""

DYNAMIC = {"importlib", "pkgutil", "runpy", "__import__", "exec", "eval"}
"""By what a notebook can import what its text does not show."""

PIP = re.compile(r"%pip install .*")
"""What the first cell of a chapter runs on Colab: it imports nothing."""


def library_digest(rooms: Collection[str] | None) -> str:
    """Return the SHA-256 of the source that decides what a notebook computes.

    That is gnlib, `gnbook.shared` and these rooms of `gnbook`, or all of them if `rooms` is None.
    The version alone would not do: who works on the library changes it without a new version.
    """
    import gnlib

    digest, library = hashlib.sha256(), Path(gnlib.__file__).parent
    files = {path: path.relative_to(library.parent) for path in library.rglob("*.py")}
    files |= {path: path.relative_to(BOOK.parent) for path in BOOK.rglob("*.py")}
    for path, name in sorted(files.items(), key=lambda item: item[1]):
        if _counts(name, rooms):
            digest.update(f"{name.as_posix()}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _counts(name: Path, rooms: Collection[str] | None) -> bool:
    if name.parts[0] == "gnlib":
        return True
    if len(name.parts) == 2:
        return name.stem not in NOT_RECORDED
    return name.parts[1] != "sweep" and (rooms is None or name.parts[1] in {"shared", *rooms})


def rooms_of(notebook: Notebook) -> tuple[str, ...] | None:
    """Return the rooms of `gnbook` that a notebook imports, or None for all of them where that is not seen."""
    if notebook.path.parent != BOOK.parents[1] / "notebooks":
        return None  # no chapter of this book: it may import rooms by way of modules of its own
    return rooms_imported(notebook.code)


def rooms_imported(sources: Iterable[str]) -> tuple[str, ...] | None:
    """Return the rooms that Python sources import, less `shared`, or None where these cannot be told from the text."""
    used = set()
    try:
        nodes = [node for source in sources for node in ast.walk(ast.parse(PIP.sub("pass", source)))]
    except SyntaxError:  # another command of IPython, say, which could run anything
        return None
    for node in nodes:
        if isinstance(node, ast.Import):
            used.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            used.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Name):
            used.add(node.id)
    if "gnbook" in used or any(name.partition(".")[0] in DYNAMIC for name in used):
        return None
    named = {name.split(".")[1] for name in used if name.startswith("gnbook.")} - NOT_RECORDED
    there = {path.name for path in BOOK.iterdir() if path.is_dir()}
    return tuple(sorted(named - {"shared", "sweep"})) if named <= there else None


def data_digests() -> dict[str, list[str]]:
    """Return the digests that images are verified against when they are read: those of the samples and whole sets."""
    from gnlib.data import DATASETS

    return {name: [dataset.sample_sha256, dataset.sha256] for name, dataset in DATASETS.items()}


class Identity:
    """Names runs by what decides their results: code of the notebook and of the library, data, and parameters.

    Attributes
    ----------
    rooms
        of `gnbook` that the notebook may use; None for all of them
    common
        what all runs of a version have in common
    """

    def __init__(self, notebook: Notebook) -> None:
        self.rooms = rooms_of(notebook)
        self.common = {"notebook": notebook.digest, "library": library_digest(self.rooms), "data": data_digests()}
        self._hash = hashlib.sha256(json.dumps(self.common, sort_keys=True).encode())

    def __call__(self, parameters: Mapping[str, object]) -> str:
        """Return the name of the run with these parameters, 20 hexadecimal digits."""
        whole = self._hash.copy()
        whole.update(json.dumps(parameters, sort_keys=True).encode())
        return whole.hexdigest()[:20]

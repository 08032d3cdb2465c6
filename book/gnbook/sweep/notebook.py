"""Read the parameters of a notebook, and digest everything that its rows depend on."""

import ast
import json
from dataclasses import dataclass
from pathlib import Path

from gnbook.digest import digest

TAG = "parameters"


@dataclass(frozen=True)
class Notebook:
    """A notebook that can be run over a grid."""

    path: Path  # absolute
    source: str  # without outputs, as the text of an .ipynb file
    names: tuple[str, ...]  # the parameters, in the order of their cell
    defaults: dict[str, object]  # of the parameters that are plain values and not expressions

    def digest(self) -> str:
        """Return the digest of everything that its rows depend on besides the parameters."""
        return digest_of_rows(self.source, self.path.parent)


def digest_of_rows(source: str, folder: Path) -> str:
    """Return the digest of everything that the rows of a notebook depend on, from the text of its .ipynb file."""
    cells = [cell["source"] for cell in json.loads(source)["cells"] if cell["cell_type"] == "code"]
    return digest(["".join(cell) for cell in cells], folder, recorded=True)


def read_notebook(path: str | Path) -> Notebook:
    """Read an .ipynb file and its `parameters` cell."""
    import nbformat

    path = Path(path).absolute()
    if path.suffix != ".ipynb":
        raise ValueError(f"{path} is not an .ipynb file, which is all that papermill reads; pass the one beside it.")
    if not path.is_file():
        raise FileNotFoundError(f"There is no notebook at {path}.")
    try:
        notebook = nbformat.read(path, as_version=4)
    except (nbformat.reader.NotJSONError, nbformat.ValidationError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a notebook: {error}") from None
    tagged = [cell for cell in notebook.cells if TAG in cell.metadata.get("tags", [])]
    if len(tagged) != 1:
        count = "no cell" if not tagged else f"{len(tagged)} cells"
        raise ValueError(f"{path.name} has {count} tagged {TAG!r}; one cell that sets them was expected.")
    names, defaults = _assignments(tagged[0].source, path.name)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return Notebook(path=path, source=nbformat.writes(notebook), names=names, defaults=defaults)


def _assignments(source: str, name: str) -> tuple[tuple[str, ...], dict[str, object]]:
    """Return the names that a cell assigns, and the values of those that are plain values.

    `papermill.inspect_notebook` reads the lines of the cell by a pattern: it skips a parameter whose comment has an
    equals sign, shortens text with a number sign in it, and accepts lines that are not Python.
    """
    try:
        statements = ast.parse(source).body
    except SyntaxError as error:
        raise ValueError(f"The {TAG} cell of {name} is not Python: {error}.") from None
    values = {}
    for statement in statements:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            target = statement.target
        else:
            continue
        if isinstance(target, ast.Name):
            values[target.id] = statement.value
    defaults = {}
    for parameter, value in values.items():
        try:
            defaults[parameter] = ast.literal_eval(value)
        except ValueError:  # an expression: known by name only
            continue
    return tuple(values), defaults

"""Read the parameters of a notebook, fit those of a case to them, and digest everything that its rows depend on."""

import ast
import difflib
import json
from collections.abc import Mapping
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

    def complete(self, case: Mapping[str, object]) -> dict[str, object]:
        """Return all parameters of a run: the defaults, replaced by those of the case, of which a misfit is refused.

        papermill itself passes an unknown name on with a warning in its log, and any value at all.
        """
        fitted = dict(self.defaults)
        for name, value in case.items():
            if name not in self.names:
                close = difflib.get_close_matches(name, self.names, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(self.names)}."
                raise ValueError(f"{self.path.name} has no parameter {name!r}; {hint}")
            default = self.defaults.get(name)
            try:
                fitted[name] = _fit(value, default)
            except TypeError:
                expected = "plain numbers and text" if default is None else f"a value such as {default!r}"
                hint = ""
                if isinstance(default, list | tuple) and not isinstance(value, list | tuple):
                    hint = " To vary a list, give a list of lists."
                elif isinstance(value, str) and isinstance(default, int | float):
                    hint = " YAML takes a number without a point, such as 1e-3, for text: write 1.0e-3."
                raise ValueError(
                    f"{self.path.name} takes for {name} {expected}; the grid gives {value!r}.{hint}"
                ) from None
        return fitted


def _fit(value: object, default: object) -> object:
    """Return a value as the type of the default, or raise TypeError."""
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if isinstance(default, list | tuple) and isinstance(value, list | tuple):
        types = {type(entry) for entry in default}
        number = 0.0 if types == {int, float} else None
        return [_fit(entry, default[0] if len(types) == 1 else number) for entry in value]
    if default is not None and type(value) is not type(default):
        raise TypeError
    json.dumps(value)  # plain numbers, text, lists and mappings pass
    return value


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
    notebook = nbformat.read(path, as_version=4)
    tagged = [cell for cell in notebook.cells if TAG in cell.metadata.get("tags", [])]
    if len(tagged) != 1:
        raise ValueError(f"{path.name} has {len(tagged)} cells tagged {TAG!r}; one that sets them was expected.")
    names, defaults = _assignments(tagged[0].source)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return Notebook(path=path, source=nbformat.writes(notebook), names=names, defaults=defaults)


def _assignments(source: str) -> tuple[tuple[str, ...], dict[str, object]]:
    """Return the names that a cell assigns, and the values of those that are plain values.

    `papermill.inspect_notebook` reads the lines of the cell by a pattern: it skips a parameter whose comment has an
    equals sign, shortens text with a number sign in it, and accepts lines that are not Python.
    """
    values, defaults = {}, {}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
            if isinstance(target, ast.Name):
                values[target.id] = statement.value
    for parameter, value in values.items():
        try:
            defaults[parameter] = ast.literal_eval(value)
        except ValueError:  # an expression: known by name only
            continue
    return tuple(values), defaults

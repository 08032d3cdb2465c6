"""Hand results from a notebook to the sweep that runs it."""

import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from gnlib.files import write

VARIABLE = "GNLIB_SWEEP_ROWS"
"""The environment variable with the path that a kernel writes its rows to."""

RESERVED = "run_"
"""Beginning of the names of columns that a sweep adds."""


def record(rows: Iterable[Mapping[str, object]]) -> None:
    """Hand results to the sweep that runs this notebook; outside a sweep this does nothing.

    A notebook may call it more than once: the rows of all calls end up in the table of the sweep. Values are numbers,
    text, truth values or None, NumPy's and torch's scalars included; rows may have different columns, but none that
    begins with `run_`, as the sweep's own do.
    """
    target = os.environ.get(VARIABLE)
    if target is None:
        return
    path = Path(target)
    before = json.loads(path.read_text())["rows"] if path.exists() else []
    recorded = [{column: _plain(column, value) for column, value in row.items()} for row in rows]
    write(path, json.dumps({"device": _device(), "rows": before + recorded}))


def _plain(column: str, value: object) -> object:
    if column.startswith(RESERVED):
        raise ValueError(f"The column {column!r} cannot begin with {RESERVED!r}: the sweep's own columns do.")
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(
        f"The column {column!r} holds a {type(value).__name__}; a number, text, a truth value or None was expected. "
        "Write one row for each element of a list or an array."
    )


def _device() -> str:
    """Return the name of the GPU, if this process has used one, or "cpu"."""
    torch = sys.modules.get("torch")
    used = torch is not None and torch.cuda.is_initialized()
    return torch.cuda.get_device_name() if used else "cpu"

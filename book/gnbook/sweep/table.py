"""Collect the rows of all runs in one table."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gnbook.sweep.folder import Folder
from gnbook.sweep.plan import Run
from gnbook.sweep.rows import RESERVED, read
from gnlib.files import open_atomic, write

if TYPE_CHECKING:
    from pandas import DataFrame


def merge(folder: Folder, runs: Sequence[Run]) -> "DataFrame":
    """Return the rows of all finished runs in their order.

    The columns are the parameters that the grid sets (lists and mappings as JSON), those that the notebook recorded,
    and the origin of each row, in columns that begin with `run_`. A run that recorded nothing has one row.
    """
    import pandas

    varied = list(dict.fromkeys(name for case in runs for name in case.given))
    named = ["case"] if any(case.label is not None for case in runs) else []
    rows = []
    for case in runs:
        report = folder.finished(case.name)
        if report is None:
            continue
        recorded, path = {"rows": [{}], "device": None}, folder.runs / case.name / "rows.json"
        if path.exists():
            recorded = read(path)
        given = {**dict.fromkeys(named, case.label), **{name: _flat(case.complete.get(name)) for name in varied}}
        origin = _origin(case.name, report, recorded["device"])
        rows += [given | row | origin for row in recorded["rows"]]  # a row knows better than its run
    columns = dict.fromkeys([*named, *varied, *(column for row in rows for column in row)])
    table = pandas.DataFrame(rows, columns=sorted(columns, key=lambda column: column.startswith(RESERVED)))
    for column in (name for name in table.columns if table[name].dtype == "object"):
        if len({type(value) for value in table[column].dropna()}) > 1:  # no type of Parquet holds both text and numbers
            table[column] = table[column].map(lambda value: value if pandas.isna(value) else str(value))
    for column in (name for name in table.columns if table[name].dtype == "float64"):
        if all(type(row.get(column)) in (int, type(None)) for row in rows):  # a gap does not make them decimal numbers
            table[column] = pandas.array([row.get(column) for row in rows], dtype="Int64")
    return table


def _origin(name: str, report: dict, device: str | None) -> dict[str, object]:
    origin = {
        "name": name,
        "device": device,
        "revision": report["revision"],
        **report["versions"],
        "threads": report["threads"],
        "seconds": report["seconds"],
        "memory_mib": round(report["memory"] / 2**20, 1),
        "finished": report["finished"],
    }
    return {f"{RESERVED}{key}": value for key, value in origin.items()}


def _flat(value: object) -> object:
    return json.dumps(value) if isinstance(value, (list, tuple, dict)) else value


def save(table: "DataFrame", path: Path) -> None:
    """Write `table.parquet` and `table.csv` in a folder, each as a whole."""
    with open_atomic(path / "table.parquet") as file:
        table.to_parquet(file, index=False)
    write(path / "table.csv", table.to_csv(index=False))

"""Collect the rows of all runs in one table."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gnbook.sweep.folder import Folder
from gnbook.sweep.plan import Run
from gnbook.sweep.rows import RESERVED
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
        report, path = folder.finished(case.name), folder.runs / case.name / "rows.json"
        if report is None:
            continue
        recorded = json.loads(path.read_text()) if path.exists() else {"rows": [{}], "device": None}
        values = {name: case.complete.get(name) for name in varied}
        given = {name: json.dumps(v) if isinstance(v, (list, tuple, dict)) else v for name, v in values.items()}
        origin = {
            "name": case.name,
            "device": recorded["device"],
            "revision": report["revision"],
            **report["versions"],
            "threads": report["threads"],
            "seconds": report["seconds"],
            "memory_mib": round(report["memory"] / 2**20, 1),
            "finished": report["finished"],
        }
        before = dict.fromkeys(named, case.label) | given
        after = {f"{RESERVED}{key}": value for key, value in origin.items()}
        rows += [before | row | after for row in recorded["rows"]]  # a row knows better than its run
    columns = dict.fromkeys([*named, *varied, *(column for row in rows for column in row)])
    table = pandas.DataFrame(rows, columns=sorted(columns, key=lambda column: column.startswith(RESERVED)))
    for column in table.columns:
        kinds = {type(row.get(column)) for row in rows} - {type(None)}
        if table[column].dtype == "object" and len(kinds) > 1:  # no type of Parquet holds both text and numbers
            table[column] = table[column].map(lambda value: value if pandas.isna(value) else str(value))
        elif table[column].dtype == "float64" and kinds <= {int}:  # a gap does not make them decimal numbers
            table[column] = pandas.array([row.get(column) for row in rows], dtype="Int64")
    return table


def save(table: "DataFrame", path: Path) -> None:
    """Write `table.parquet` and `table.csv` in a folder, each as a whole."""
    with open_atomic(path / "table.parquet") as file:
        table.to_parquet(file, index=False)
    write(path / "table.csv", table.to_csv(index=False))

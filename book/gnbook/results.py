"""The tables of finished sweeps that the book keeps, `book/results/<chapter>.csv`, without pandas."""

import csv
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

Cell = int | float | bool | str | None
Row = dict[str, Cell]

WIDTH = 92  # of the lines that a page prints

PACKAGE = Path(__file__).parent
# An installed package has the tables within it; in a checkout they lie in the book.
FOLDERS = (PACKAGE / "kept", PACKAGE.parent / "results")


def kept(name: str) -> list[Row]:
    """Return the rows of a kept table: from columns to numbers, truth values, text, or None where it has nothing."""
    with path_of(name).open(newline="", encoding="utf8") as file:
        return [{column: _value(text) for column, text in row.items()} for row in csv.DictReader(file)]


def path_of(name: str) -> Path:
    """Return where a kept table lies: `book/results/<name>.csv`, or within the package where that is installed."""
    installed, in_checkout = (folder / f"{name}.csv" for folder in FOLDERS)
    return installed if installed.exists() else in_checkout


def origin(rows: Sequence[Row]) -> str:
    """Return the origin of rows of a kept table in two lines or so: number of runs, device, minutes, versions."""
    runs = {row["run_name"]: row for row in rows}.values()

    def all_of(column: str) -> str:
        return " and ".join(sorted({str(run[column]) for run in runs}))

    minutes = sum(run["run_seconds"] for run in runs) / 60
    lines = (
        f"{len(runs)} runs on {all_of('run_device')}, threads: {all_of('run_threads')}; {minutes:.0f} minutes in all,",
        f"gnlib {all_of('run_gnlib')} at {all_of('run_revision')}, torch {all_of('run_torch')}, "
        f"{max(run['run_finished'] for run in runs)[:10]}",
    )
    return "\n".join(fill(line, WIDTH) for line in lines)


def agreement(rows: Sequence[Row], table: Sequence[Row], *columns: str, value: str = "kappa") -> str:
    """Return a line that counts the rows just computed that agree with a kept table to six digits."""

    def key(row: Row) -> tuple[float | str, ...]:
        return tuple(_untyped(row[column]) for column in columns)

    there = {key(row): row[value] for row in table if row.get(value) is not None}
    pairs = [(row[value], there[key(row)]) for row in rows if key(row) in there]
    agree = sum(abs(a - b) < 1e-6 * abs(b) for a, b in pairs)
    return f"{len(pairs)} of {len(rows)} values are in the kept table too; {agree} of these agree to six digits"


def _untyped(cell: Cell) -> float | str:
    """Return a value as it is read from a file: "19" comes back as 19, and 2 as 2.0 where other rows have none."""
    try:
        return float(cell)
    except (TypeError, ValueError):
        return str(cell)


def _value(text: str) -> Cell:
    if text in ("", "True", "False"):
        return {"": None, "True": True, "False": False}[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text

"""The figures that a grid declares, drawn from the table of its sweep.

A figure is a mapping: `name` (of the file), `x` and `y` (columns of the table), and if wanted

- `where`: only the rows with these values
- `lines`: one line for each value of this column, and `label`: what to call it, with {} for the value
- `dashed`: a second column to draw, and `dashed_label`: what to call it
- `xscale`, `yscale` (`linear` or `log`), `xlabel`, `ylabel`, `title`
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gnbook.sweep.folder import Folder
from gnlib.files import open_atomic

if TYPE_CHECKING:
    from matplotlib.pyplot import Axes
    from pandas import DataFrame

REQUIRED = ("name", "x", "y")
OPTIONAL = ("lines", "label", "dashed", "dashed_label", "where", "xscale", "yscale", "xlabel", "ylabel", "title")


def report(folder: str | Path) -> list[Path]:
    """Draw the figures of a sweep into its folder and return where they are.

    Raises
    ------
    FileNotFoundError
        The folder holds no table.
    ValueError
        The grid declares no figure, or one that the table does not have the columns or rows for.
    """
    import pandas

    folder = Path(folder).absolute()
    try:
        table = pandas.read_parquet(folder / "table.parquet")
        figures = json.loads((folder / "sweep.json").read_text())["figures"]
    except FileNotFoundError:
        raise FileNotFoundError(f"{folder} holds no table; run the sweep first.") from None
    if not figures:
        raise ValueError(f"The grid of {folder} declares no figures; list them under `figures` and run it again.")
    return [_draw(table, figure, folder) for figure in figures]


def left_out(folder: str | Path) -> list[str]:
    """Say in a line how many finished runs are of another version than those in the table; no line if none is."""
    import pandas

    folder = Folder(Path(folder).absolute())
    (name, *_) = pandas.read_parquet(folder.path / "table.parquet", columns=["run_name"])["run_name"]
    run = folder.finished(name)  # all in the table are of its version
    return folder.of_other_versions(run["digest"]) if run else []


def check_figure(figure: Mapping[str, object]) -> None:
    """Complain of a figure that cannot be drawn from any table.

    Raises
    ------
    ValueError
        A key is missing or unknown.
    """
    missing, unknown = set(REQUIRED) - set(figure), set(figure) - {*REQUIRED, *OPTIONAL}
    if missing or unknown:
        what = f"lacks {min(missing)!r}" if missing else f"has {min(unknown)!r}"
        raise ValueError(f"a figure {what}; it takes {', '.join(REQUIRED)} and may take {', '.join(OPTIONAL)}.")


def _draw(table: "DataFrame", figure: Mapping[str, object], folder: Path) -> Path:
    import matplotlib.pyplot as plt

    from gnbook import figures

    name, rows = figure["name"], table
    for column in (figure[key] for key in ("x", "y", "lines", "dashed") if key in figure):
        _require(column, table, name)
    for column, value in figure.get("where", {}).items():
        _require(column, table, name)
        rows = rows[rows[column] == value]
    rows = rows.dropna(subset=[figure["x"], figure["y"]])
    if rows.empty:
        raise ValueError(f"The table has no row for the figure {name!r}; have its runs finished?")
    drawing, (axis,) = figures.panels(height=4)
    lines = figure.get("lines")
    groups = rows.groupby(lines) if lines else [(None, rows)]
    for number, (value, group) in enumerate(groups):
        color = figures.COLORS[number % len(figures.COLORS)]
        label = figure.get("label", f"{lines} = {{}}").format(value) if lines else None
        _line(axis, group, figure, label, color)
    axis.set(
        xlabel=figure.get("xlabel", figure["x"]),
        ylabel=figure.get("ylabel", figure["y"]),
        xscale=figure.get("xscale", "linear"),
        yscale=figure.get("yscale", "linear"),
        title=figure.get("title", ""),
    )
    ticks = sorted(rows[figure["x"]].unique())
    if len(ticks) <= 12:
        axis.set_xticks(ticks, ticks)
        axis.set_xticks([], minor=True)
    if "dashed" in figure:
        axis.plot([], [], "--", color="gray", linewidth=1, label=figure.get("dashed_label", figure["dashed"]))
    if lines or "dashed" in figure:
        axis.legend()
    path = folder / f"{name}.png"
    with open_atomic(path) as image:
        drawing.savefig(image, dpi=200, format="png")
    plt.close(drawing)
    return path


def _line(axis: "Axes", rows: "DataFrame", figure: Mapping[str, object], label: str | None, color: str) -> None:
    """Draw the mean over the rows of each x, with one standard deviation to either side."""
    from gnbook.figures import band_of_rows

    band_of_rows(axis, rows.to_dict("records"), figure["x"], figure["y"], label, color)
    if "dashed" in figure:
        dashed = rows.dropna(subset=[figure["dashed"]]).groupby(figure["x"])[figure["dashed"]].mean()
        axis.plot(dashed.index, dashed, "--", color=color, linewidth=1)


def _require(column: str, table: "DataFrame", figure: str) -> None:
    if column not in table.columns:
        raise ValueError(
            f"The figure {figure!r} needs the column {column!r}; the table has {', '.join(table.columns)}."
        )

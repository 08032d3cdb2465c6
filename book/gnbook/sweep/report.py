"""Draw the figures that a grid declares from the table of its sweep; `book/sweeps.md` says how."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gnlib.files import open_atomic

if TYPE_CHECKING:
    from pandas import DataFrame

REQUIRED = ("name", "x", "y")
AXIS = ("xscale", "yscale", "xlabel", "ylabel", "title")
OPTIONAL = ("lines", "label", "dashed", "dashed_label", "where", *AXIS)


def report(folder: str | Path) -> list[Path]:
    """Draw the figures of a sweep into its folder and return their paths."""
    import pandas

    folder = Path(folder).absolute()
    table = pandas.read_parquet(folder / "table.parquet")
    figures = json.loads((folder / "sweep.json").read_text())["figures"]
    if not figures:
        raise ValueError(f"The grid of {folder} declares no figures; list them under `figures` and run it again.")
    return [_draw(table, figure, folder) for figure in figures]


def check_figure(figure: Mapping[str, object]) -> None:
    """Check that a figure can be drawn."""
    missing, unknown = set(REQUIRED) - set(figure), set(figure) - {*REQUIRED, *OPTIONAL}
    if missing or unknown:
        fault = f"lacks {min(missing)!r}" if missing else f"has {min(unknown)!r}"
        raise ValueError(f"a figure {fault}; it takes {', '.join(REQUIRED)} and may take {', '.join(OPTIONAL)}.")


def _draw(table: "DataFrame", figure: Mapping[str, object], folder: Path) -> Path:
    """Draw the means over the rows of each x, with one standard deviation to either side."""
    import matplotlib.pyplot as plt

    from gnbook import figures

    name, x, y = (figure[key] for key in REQUIRED)
    lines, dashed, where = figure.get("lines"), figure.get("dashed"), figure.get("where", {})
    for column in filter(None, (x, y, lines, dashed, *where)):
        if column not in table.columns:
            raise ValueError(
                f"The figure {name!r} needs the column {column!r}; the table has {', '.join(table.columns)}."
            )
    rows = table[(table[list(where)] == list(where.values())).all(axis=1)].dropna(subset=[x, y])
    if rows.empty:
        raise ValueError(f"The table has no row for the figure {name!r}; have its runs finished?")
    drawing, (axis,) = figures.panels(height=4)
    for number, (value, group) in enumerate(rows.groupby(lines) if lines else [(None, rows)]):
        color = figures.COLORS[number % len(figures.COLORS)]
        label = figure.get("label", f"{lines} = {{}}").format(value) if lines else None
        figures.band_of_rows(axis, group.to_dict("records"), x, y, label, color)
        if dashed:
            means = group.dropna(subset=[dashed]).groupby(x)[dashed].mean()
            axis.plot(means.index, means, "--", color=color, linewidth=1)
    axis.set(**{"xlabel": x, "ylabel": y} | {key: figure[key] for key in AXIS if key in figure})
    ticks = sorted(rows[x].unique())
    if len(ticks) <= 12:
        axis.set_xticks(ticks, ticks)
        axis.set_xticks([], minor=True)
    if dashed:
        axis.plot([], [], "--", color="gray", linewidth=1, label=figure.get("dashed_label", dashed))
    if lines or dashed:
        axis.legend()
    path = folder / f"{name}.png"
    with open_atomic(path) as image:
        drawing.savefig(image, dpi=200, format="png")
    plt.close(drawing)
    return path

"""One style for every figure of the book."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float

from gnbook import results

if TYPE_CHECKING:
    from IPython.display import SVG

Row = Mapping[str, object]
SCHEMATICS = Path(__file__).parent / "schematics"

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""The palette of Okabe and Ito, told apart by readers with any kind of colour vision."""

STYLE = {
    "axes.prop_cycle": mpl.cycler(color=COLORS),
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "figure.facecolor": "white",
    "figure.labelsize": "medium",
    "figure.titlesize": "medium",
    "font.size": 14,  # for small screens
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "savefig.facecolor": "white",
}


def panels(count: int = 1, *, height: float = 3.4, **kwargs: object) -> tuple[plt.Figure, np.ndarray]:
    """Return a figure 8 inches wide, with `count` axes side by side in an array; its style stays in force."""
    plt.rcParams.update(STYLE)
    figure, axes = plt.subplots(1, count, figsize=(8, height), squeeze=False, **kwargs)
    return figure, axes[0]


def table(name: str) -> Path:
    """Return the path of a table that the book keeps, `book/results/<name>.csv`, for `csv.DictReader`."""
    return results.path_of(name)


def band(
    axis: plt.Axes,
    x: Sequence[float],
    runs: Float[np.ndarray, "runs points"],
    label: str | None,
    color: str,
    linestyle: str = "-",
) -> None:
    """Draw the mean over runs with a band of one standard deviation to either side, as Zhao 2024 does."""
    mean, deviation = runs.mean(0), runs.std(0)
    axis.plot(x, mean, linestyle, marker="o", color=color, label=label)
    axis.fill_between(x, mean - deviation, mean + deviation, color=color, alpha=0.2, linewidth=0)


def band_of_rows(
    axis: plt.Axes, rows: Iterable[Row], x: str, y: str, label: str | None, color: str, linestyle: str = "-"
) -> None:
    """Draw the same for rows of a table that is kept: column y against column x, each with runs of its own."""
    marks, runs = by_mark(rows, x, y)
    mean, deviation = (np.array([statistic(values) for values in runs]) for statistic in (np.mean, np.std))
    band(axis, marks, np.stack([mean - deviation, mean + deviation]), label, color, linestyle)


def crosses(axis: plt.Axes, rows: Iterable[Row], x: str, y: str) -> None:
    """Mark the means of one run on the curves of another."""
    marks, runs = by_mark(rows, x, y)
    axis.plot(marks, [np.mean(values) for values in runs], "x", color=COLORS[6], markersize=7, zorder=3)


def by_mark(rows: Iterable[Row], x: str, y: str) -> tuple[list[float], list[list[float]]]:
    """Return the values of column x in their order, the marks of an axis, and at each the values of column y."""
    runs = defaultdict(list)
    for row in rows:
        runs[row[x]].append(row[y])
    marks = sorted(runs)
    return marks, [runs[mark] for mark in marks]


def schematic(name: str) -> "SVG":
    """Return the drawing of an architecture, to be shown in a notebook."""
    from IPython.display import SVG

    return SVG(filename=str(SCHEMATICS / f"{name}.svg"))

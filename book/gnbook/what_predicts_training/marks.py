"""Rank correlations and their intervals, as marks on the rows of a figure."""

from collections.abc import Mapping, Sequence
from itertools import cycle, islice

import matplotlib.pyplot as plt
import numpy as np

from gnbook.figures import COLORS, panels
from gnbook.what_predicts_training.correlations import Correlations, Interval
from gnbook.what_predicts_training.table import NAMES

APART = 0.22  # of the marks of a row, in rows
NOTHING = Interval(*3 * [np.nan])  # has no mark


def marks(axis: plt.Axes, names: Sequence[str], found: Mapping[str, Sequence[Interval]], *, first: int = 0) -> None:
    """Draw a row of marks for each name, from the bottom up, a mark of each label on it."""
    middle = (len(found) - 1) / 2
    for i, ((label, intervals), color, mark) in enumerate(
        zip(found.items(), *(islice(cycle(all_of), first, None) for all_of in (COLORS, "os^Dv*")), strict=False)
    ):
        value, low, high = np.array(intervals).T
        error, rows = np.clip([value - low, high - value], 0, None), np.arange(len(names)) + APART * (middle - i)
        axis.errorbar(value, rows, xerr=error, fmt=mark, color=color, markersize=4, linewidth=1, label=label)
    axis.set_yticks(range(len(names)), names)
    axis.axvline(0, color="0.3", linewidth=1)
    axis.set(xlim=(-1.05, 1.05), ylim=(-0.6, len(names) - 0.4))


def side_by_side(
    found: Mapping[str, Mapping[str, Correlations | None]], names: Sequence[str], *, height: float = 4.8, first: int = 0
) -> np.ndarray:
    """Draw a panel for each title, with a row for each predictor and a mark of each label; return the axes."""
    figure, axes = panels(len(found), height=height, sharey=True)
    for axis, (title, by_label) in zip(axes, found.items(), strict=True):
        intervals = {
            label: [one.interval(name) if one else NOTHING for name in names] for label, one in by_label.items()
        }
        marks(axis, [NAMES[name] for name in names], intervals, first=first)
        axis.set(xlabel="rank correlation", title=title)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return axes

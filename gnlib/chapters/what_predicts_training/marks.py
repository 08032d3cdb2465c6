"""Rank correlations and their intervals, as marks on the rows of a figure."""

from collections.abc import Mapping, Sequence
from itertools import cycle, islice

import matplotlib.pyplot as plt
import numpy as np

from gnlib.chapters.figures import COLORS
from gnlib.chapters.what_predicts_training.correlations import Interval

APART = 0.22  # of the marks of a row, in rows


def marks(axis: plt.Axes, names: Sequence[str], found: Mapping[str, Sequence[Interval]], *, first: int = 0) -> None:
    """Draw a row of marks for each name, from the bottom up, a mark of each label on it.

    Parameters
    ----------
    axis
        from -1 to 1 when it is left
    names
        of the rows
    found
        by label, an interval for each name; one without a value has no mark
    first
        which colour and mark the first label has; labels of another kind take others

    Examples
    --------
    >>> _, axis = plt.subplots()
    >>> marks(axis, ["kappa", "drift"], {"all": [Interval(0.7, 0.5, 0.8), Interval(0.1, -0.1, 0.3)]})
    >>> [label.get_text() for label in axis.get_yticklabels()]
    ['kappa', 'drift']
    """
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

"""Trainings in the set-up of the public code, those that the book keeps and those of today, told apart."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from gnbook import figures
from gnbook.results import Cell

Row = Mapping[str, Cell]

PRUNINGS = ("none", "weights", "scales and biases", "every tensor")
SETTING = {"factor": 1.0, "published_loss": "cross_entropy", "precision": "float32"}


class Training(NamedTuple):
    """Which network was trained, and what of it was pruned before."""

    network: str
    pruning: str
    fraction: float

    def __str__(self) -> str:
        """Return how much of what was pruned."""
        the = "" if self.pruning.startswith("every") else "the "
        return f"{100 * self.fraction:.0f} % of {the}{self.pruning}" if self.fraction else "nothing"


def trainings(rows: Iterable[Row]) -> dict[Training, list[Row]]:
    """Return the rows of each training, all seeds together, without those at other rates, losses and precisions."""
    found: dict[Training, list[Row]] = defaultdict(list)
    for row in rows:
        if all(row.get(column, value) == value for column, value in SETTING.items()):
            found[Training(row["network"], row["pruning"], row["fraction"])].append(row)
    return {key: found[key] for key in sorted(found, key=lambda t: (t.network, PRUNINGS.index(t.pruning), t.fraction))}


def most_pruned(found: Mapping[Training, list[Row]], network: str) -> dict[str, Training]:
    """Return the training of a network in which most is pruned, for each pruning that was run."""
    return {training.pruning: training for training in found if training.network == network}  # the last one stays


def path(rows: Iterable[Row], column: str, columns: str = "kept") -> tuple[list[float], list[float]]:
    """Return the epochs at which a column has values, and the geometric mean over seeds at each.

    Where there is BatchNorm, a column on the Gauss-Newton matrix is of that with the statistics of the batch.
    """
    some = [
        row
        for row in rows
        if row.get(column) is not None and row.get("statistics") != "running" and row.get("columns") in (None, columns)
    ]
    epochs, values = figures.by_mark(some, "epoch", column)
    return epochs, [float(np.exp(np.log(seeds).mean())) for seeds in values]


def late_loss(rows: Iterable[Row]) -> float:
    """Return the mean loss over the last tenth of the epochs of one training, the last quarter if less than 100."""
    epochs, losses = path(rows, "loss")
    since = (0.9 if epochs[-1] >= 100 else 0.75) * epochs[-1]
    return float(np.mean([loss for epoch, loss in zip(epochs, losses, strict=True) if epoch >= since]))

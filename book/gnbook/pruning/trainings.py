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
    """Which network was trained, and what of it was pruned before.

    Attributes
    ----------
    network
        its name
    pruning
        one of `PRUNINGS`
    fraction
        of each tensor that is pruned

    Examples
    --------
    >>> [str(Training("ViT", *what)) for what in (("weights", 0.8), ("every tensor", 0.4), ("none", 0.0))]
    ['80 % of the weights', '40 % of every tensor', 'nothing']
    """

    network: str
    pruning: str
    fraction: float

    def __str__(self) -> str:
        """Return how much of what was pruned."""
        the = "" if self.pruning.startswith("every") else "the "
        return f"{100 * self.fraction:.0f} % of {the}{self.pruning}" if self.fraction else "nothing"


def trainings(rows: Iterable[Row]) -> dict[Training, list[Row]]:
    """Return the rows of each training, all seeds together, without those at other rates, losses and precisions.

    Parameters
    ----------
    rows
        such as :func:`gnbook.pruning.experiment.run` returns, with columns for the network, the pruning and the
        fraction; those of a kept table have more

    Returns
    -------
    Networks in alphabetical order, prunings in the order of `PRUNINGS`, fractions from the smallest on.

    Examples
    --------
    >>> about = {"network": "ViT", "epoch": 0, "loss": 2.3}
    >>> rows = [about | {"pruning": "weights", "fraction": 0.8}, about | {"pruning": "none", "fraction": 0.0}]
    >>> [str(training) for training in trainings([*rows, rows[0] | {"factor": 3.0}])]
    ['nothing', '80 % of the weights']
    """
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

    Parameters
    ----------
    rows
        of one training
    column
        "loss", or one on the Gauss-Newton matrix, such as "kappa"; where there is BatchNorm, it is the matrix with the
        statistics of the batch
    columns
        of the Jacobian, "kept" or "all"; losses have none

    Examples
    --------
    >>> rows = [{"epoch": 0, "kappa": kappa, "statistics": "none", "columns": "kept"} for kappa in (10.0, 1000.0)]
    >>> epochs, (mean,) = path(rows, "kappa")
    >>> epochs, round(mean)
    ([0], 100)
    """
    some = [
        row
        for row in rows
        if row.get(column) is not None and row.get("statistics") != "running" and row.get("columns") in (None, columns)
    ]
    epochs, values = figures.by_mark(some, "epoch", column)
    return epochs, [float(np.exp(np.log(seeds).mean())) for seeds in values]


def late_loss(rows: Iterable[Row]) -> float:
    """Return the mean loss at the end of one training: of the last tenth of its epochs, of the last quarter if short.

    Short are those of less than 100 epochs. Losses zigzag, and the last one may be a spike.

    Examples
    --------
    >>> late_loss([{"epoch": epoch, "loss": loss} for epoch, loss in ((0, 9.0), (80, 5.0), (90, 2.0), (100, 4.0))])
    3.0
    """
    epochs, losses = path(rows, "loss")
    since = (0.9 if epochs[-1] >= 100 else 0.75) * epochs[-1]
    return float(np.mean([loss for epoch, loss in zip(epochs, losses, strict=True) if epoch >= since]))

"""The kept table of this chapter beside the one of the trial: what is known at the start, and the steps taken."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from gnbook.results import Row

Trial = Float[np.ndarray, "families networks"]

COLUMNS = ("loss", "family", "initialisation", "seed")  # what names a network, with the loss that it is trained on
AT_THE_START = {"kappa": "kappa", "T*": "lower", "upper": "upper", "effective": "effective"}
OF_THE_TRIAL = {"steps of the model": "forecast_tenth", "loss at the start": "initial_loss"}
WAYS = ("descent", "momentum", "adam")


def side_by_side(
    kept: Iterable[Row], trained: Iterable[Row], loss: str
) -> tuple[Mapping[str, Trial], Mapping[str, Trial]]:
    """Return predictors and steps as arrays with a row for each family, in the same order of networks.

    What is missing is infinite: steps of a network that did not arrive, bounds that there are not. Of the trained rows
    those are taken that `kept` knows.
    """
    kept = _in_order(row for row in kept if row["loss"] == loss)
    known = {_name(row) for row in kept}
    by_way = {
        way: _in_order(row for row in trained if (row["n"], row["optimizer"]) == (50, way) and _name(row) in known)
        for way in WAYS
    }
    families = len({row["family"] for row in kept})
    predictors = {name: _column(kept, column, families) for name, column in AT_THE_START.items()}
    predictors |= {name: _column(by_way["descent"], column, families) for name, column in OF_THE_TRIAL.items()}
    return predictors, {way: _column(rows, "steps_tenth", families) for way, rows in by_way.items()}


def _name(row: Row) -> tuple[str, ...]:
    return tuple(str(row[column]) for column in COLUMNS)


def _in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=_name)


def _column(rows: Sequence[Row], name: str, families: int) -> Trial:
    return np.array([np.inf if row[name] is None else row[name] for row in rows], dtype=float).reshape(families, -1)

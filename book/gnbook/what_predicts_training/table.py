"""The table of the trial: a row for each network and optimiser, and how well its columns order the networks."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gnbook.results import Cell, Row
from gnbook.shared.tuning import LOSSES, Setting, constant_loss, tune
from gnbook.what_predicts_training.correlations import Correlations, Statistic, correlate, pooled
from gnbook.what_predicts_training.predictors import Start

CHOICE = {"descent": "forecast_kp", "momentum": "forecast_kp", "adam": "loss_after_20"}
"""The predictor of the steps to a goal that was chosen for each optimiser, before the trial."""

RIVALS = ("kappa", "initial_loss", "forecast", "forecast_kp", "loss_after_20")
"""What the choice is held against."""

GOALS = {"tenth": "a tenth of the constant's", "1e-1": "0.1 of the start"}
GOALS |= {"1e-2": "0.01", "1e-3": "0.001", "1e-4": "0.0001"}
"""The losses that networks are to get below: a tenth of that of the best constant, and parts of that at the start."""

WAYS = {"descent": "gradient descent", "momentum": "momentum", "adam": "Adam"}
"""What a reader calls each way of training."""

HELD_OUT = ("deep and narrow", "CNN, BatchNorm", "ResNet, SkipInit", "ViT, no LayerNorm")  # nobody looked before
LOSS_NAMES = {"mse": "squared error", "cross_entropy": "cross-entropy"}
"""What a reader calls each loss."""

SHOWN = ("loss_after_20", "absolute_after_20", "initial_loss", "kappa", "forecast")
"""The five main predictors, as figures have them: from the bottom up."""

FORECASTS = ("forecast", "forecast_kp")  # these have a column for each goal

PREDICTORS = {
    "kappa": (1, "condition number"),
    "largest": (1, "largest eigenvalue"),
    "smallest": (-1, "smallest eigenvalue"),
    "trace_over_largest": (-1, "trace over largest"),
    "effective_rank": (-1, "effective rank"),
    "kappa_loss": (1, "κ of the loss"),
    "alignment": (-1, "alignment"),
    "weighted_residual": (1, "weighted residual"),
    "drift": (1, "drift"),
    "sharpness": (1, "sharpness"),
    "gradient_quotient": (1, "gradient quotient"),
    "naswot": (-1, "NASWOT"),
    "zico": (-1, "ZiCo"),
    "synflow": (-1, "SynFlow"),
    "te_nas": (1, "TE-NAS"),
    "chi_1": (1, "χ₁"),
    "parameters": (-1, "parameters"),
    "initial_loss": (1, "loss at the start"),
    "gradient_norm": (-1, "gradient norm"),
    "loss_after_20": (1, "share after 20 steps"),
    "alignment_after_20": (-1, "alignment after 20"),
    "forecast": (1, "forecast"),
    "forecast_kp": (1, "scaled forecast"),
    "absolute_after_20": (1, "loss after 20 steps"),  # the loss itself, where `loss_after_20` is a share
}
"""The sign of a change in each predictor that is said to mean slower training, and what a reader calls it."""
SIGNS = {name: sign for name, (sign, _) in PREDICTORS.items()}
NAMES = {name: called for name, (_, called) in PREDICTORS.items()}


def rows_of(
    network: nn.Module,
    x: Float[Tensor, "n ..."],
    y: Tensor,
    loss: str,
    *,
    optimizers: Sequence[str],
    measured: int,
    horizon: int,
    batch_size: int,
    seed: int,
) -> Iterator[dict[str, Cell]]:
    """Yield a row for each optimiser: what is foretold of a network, and the steps that it takes at its best rates.

    Predictors see the first `measured` samples. Mini-batches are for momentum alone, whose predictors are those of
    descent.
    """
    with torch.no_grad():
        initial = LOSSES[loss](network(x), y).item()
    goals = {"tenth": constant_loss(y, loss) / 10} | {f"1e-{i}": initial / 10**i for i in (1, 2, 3, 4)}
    start = Start(network, x[:measured], y[:measured], loss)
    foretold = start.predictors(list(goals.values()), torch.Generator().manual_seed(0))
    by_goal = {f"{kind}_{goal:g}": f"{kind}_{name}" for kind in FORECASTS for name, goal in goals.items()}
    foretold = {by_goal.get(name, name): value for name, value in foretold.items()}
    guesses = {"descent": 2 / foretold["sharpness"], "momentum": 0.5 / foretold["sharpness"], "adam": 2**-7}
    for optimizer in optimizers:
        batch = batch_size if optimizer == "momentum" else None
        setting = Setting(x, y, loss, optimizer, goals, horizon, batch, seed)
        found = tune(network, setting, guesses[optimizer])
        row = {"n": len(x), "loss": loss, "optimizer": optimizer, "seed": seed, "rates": len(found.curves), **foretold}
        row |= start.after(20, "adam" if optimizer == "adam" else "descent")
        for name in goals:
            best = found.best(name)
            row[f"steps_{name}"], row[f"rate_{name}"] = best if best[0] < np.inf else (None, None)
        yield row


def those(rows: Iterable[Row], **values: Cell) -> list[Row]:
    """Return the rows that have these values."""
    return [row for row in rows if values.items() <= row.items()]


def arrived(rows: Iterable[Row], goal: str = "tenth") -> list[Row]:
    """Return the rows of the networks that get below a goal."""
    return [row for row in rows if row[f"steps_{goal}"] is not None]


def in_order(rows: Iterable[Row], name: str, least: float, most: float) -> Bool[np.ndarray, " pairs"]:
    """Return for each pair of networks whether the one with the smaller number takes fewer steps to the main goal.

    The pairs are of different families, with the same initialisation and seed. Those with as many steps are left out.
    The rows are of one way of training; what is missing counts as larger than all numbers. The larger number over the
    smaller is from `least`, included, to `most`; ties are left out.

    >>> made = [("a", 10, 5), ("b", 40, 9), ("c", 400, 7)]
    >>> about = {"initialisation": "default", "seed": 0}
    >>> table = [about | {"family": f, "forecast_tenth": n, "steps_tenth": steps} for f, n, steps in made]
    >>> in_order(table, "forecast_tenth", 10, math.inf), in_order(table, "forecast_tenth", 1, 10)
    (array([ True, False]), array([ True]))
    """
    found = []
    for a, b in combinations(rows, 2):
        apart = a["family"] != b["family"] and all(a[column] == b[column] for column in ("initialisation", "seed"))
        (low, fast), (high, slow) = sorted((_or_never(row[name]), _or_never(row["steps_tenth"])) for row in (a, b))
        if apart and fast != slow and low < high and least <= high / low < most:
            found.append(fast < slow)
    return np.array(found, dtype=bool)


def _or_never(value: float | None) -> float:
    return math.inf if value is None else value


def order(
    rows: Sequence[Row], goal: str = "tenth", *, names: Sequence[str] = tuple(SIGNS), statistic: Statistic = pooled
) -> Correlations:
    """Return how well predictors order networks by their steps to a goal.

    Rows are as :func:`rows_of` yields them, with the `family` of each. Each predictor is turned so that larger is said
    to mean slower; what the rows lack has no correlation.
    """
    steps, families = ([row[column] for row in rows] for column in (f"steps_{goal}", "family"))
    predictors = {name: _slower(rows, name, goal) for name in names}
    return correlate(predictors, steps, families, given=_slower(rows, "initial_loss", goal), statistic=statistic)


def _slower(rows: Sequence[Row], name: str, goal: str) -> list[float | None]:
    """Return a column, turned so that larger is said to mean slower."""
    column = [_number(row, f"{name}_{goal}" if name in FORECASTS else name) for row in rows]
    return [None if value is None else SIGNS[name] * value for value in column]


def _number(row: Row, name: str) -> float | None:
    if name != "absolute_after_20":
        return row.get(name)
    share, initial = row.get("loss_after_20"), row["initial_loss"]
    return None if share is None else share * initial

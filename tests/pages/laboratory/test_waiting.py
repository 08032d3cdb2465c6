"""What the laboratory says of the law of waiting is what its cells print; its table is that of the trial's own code."""

import numpy as np
import pytest
from gnbook import results
from gnbook.waiting.table import WAYS

from tests.pages.pages import texts

PAGE = "laboratory/waiting"
LOSSES = "mse", "cross_entropy"
TRAINED = [row for row in results.kept("what-predicts-training") if row["n"] == 50 and row["optimizer"] == "descent"]


def correlations(loss):
    """By predictor: rank correlations between and within families, for each way of training."""
    _, *lines = [text.splitlines() for text in texts(PAGE) if text.startswith("between, within:")][LOSSES.index(loss)]
    cells = {line[:20].strip(): [float(cell) for cell in line[20:].split()] for line in lines}
    return {name: dict(zip(WAYS, zip(row[::2], row[1::2], strict=True), strict=True)) for name, row in cells.items()}


def values():
    table = correlations("mse")
    return {
        "trained": len([row for row in TRAINED if row["loss"] == "mse"]),
        "never": sum(row["lower"] == np.inf for row in results.kept("waiting") if row["loss"] == "mse"),
        "within_waiting": table["T*"]["descent"][1],
        "within_kappa": table["kappa"]["descent"][1],
    }


def test_within_families_the_law_knows_what_kappa_does_not():
    table = correlations("mse")
    for way in WAYS:
        apart, inside = table["T*"][way]
        assert apart == pytest.approx(table["kappa"][way][0], abs=0.05)
        assert apart == pytest.approx(table["steps of the model"][way][0], abs=0.05)
        assert inside > table["kappa"][way][1] + 0.3 and inside > 0.6 * table["T*"]["descent"][1]
        assert table["loss at the start"][way][1] > inside + 0.1

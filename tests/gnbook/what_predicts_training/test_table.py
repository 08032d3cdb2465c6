"""The rows of the trial, and how they are ordered."""

import math

import pytest
import scipy
import torch
from gnbook.shared.tuning import LOSSES, Setting, constant_loss, tune
from gnbook.what_predicts_training.predictors import Start
from gnbook.what_predicts_training.table import FORECASTS, GOALS, order, rows_of

from tests.gnbook.what_predicts_training.cases import LABELS, TARGETS, both, inputs, small


@both
def test_a_row_holds_what_was_foretold_and_what_came(loss):
    net, x, y = small(), inputs(4), {"mse": TARGETS, "cross_entropy": LABELS}[loss]
    before = [p.clone() for p in net.parameters()]
    made = {"optimizers": ["descent", "momentum", "adam"], "measured": 4, "horizon": 60, "batch_size": 3, "seed": 5}
    rows = list(rows_of(net, x, y, loss, **made))
    assert all(torch.equal(old, new) for old, new in zip(before, net.parameters(), strict=True))
    assert [row["optimizer"] for row in rows] == made["optimizers"]
    initial = LOSSES[loss](net(x), y).item()
    goals = dict(zip(GOALS, (constant_loss(y, loss) / 10, *(initial / 10**i for i in (1, 2, 3, 4))), strict=True))
    for row in rows:
        kind = "adam" if row["optimizer"] == "adam" else "descent"
        batch = 3 if row["optimizer"] == "momentum" else None
        start = Start(net, x[:4], y[:4], loss)
        expected = start.predictors(list(goals.values()), torch.Generator().manual_seed(0)) | start.after(20, kind)
        for name, goal in goals.items():
            for forecast in FORECASTS:
                assert row[f"{forecast}_{name}"] == expected.pop(f"{forecast}_{goal:g}")
        assert {name: row[name] for name in expected} == expected
        setting = Setting(x, y, loss, row["optimizer"], goals, 60, batch, 5)
        guesses = {"descent": 2 / row["sharpness"], "momentum": 0.5 / row["sharpness"], "adam": 2**-7}
        found = tune(net, setting, guesses[row["optimizer"]])
        for name in goals:
            steps, rate = found.best(name)
            arrived = steps < math.inf
            assert (row[f"steps_{name}"], row[f"rate_{name}"]) == ((steps, rate) if arrived else (None, None))
    assert any(row["steps_1e-1"] for row in rows) and any(row["steps_1e-4"] is None for row in rows)


def table(count=12):
    draw = torch.rand(count, 5, generator=torch.Generator().manual_seed(1)).tolist()
    return [
        {"family": "abc"[i % 3], "n": 50 + i % 2, "initial_loss": a, "kappa": b, "loss_after_20": c, "smallest": d}
        | {"forecast_tenth": d, "forecast_1e-1": -d, "steps_tenth": e, "steps_1e-1": e}
        for i, (a, b, c, d, e) in enumerate(draw)
    ]


def test_predictors_are_turned_to_slower_and_taken_for_their_goal():
    rows = table()
    steps = [row["steps_tenth"] for row in rows]
    names = ["kappa", "smallest", "forecast", "absolute_after_20", "naswot"]
    found = order(rows, names=names)
    expected = {
        "kappa": scipy.stats.spearmanr([row["kappa"] for row in rows], steps).statistic,
        "smallest": -scipy.stats.spearmanr([row["smallest"] for row in rows], steps).statistic,
        "forecast": scipy.stats.spearmanr([row["forecast_tenth"] for row in rows], steps).statistic,
        "absolute_after_20": scipy.stats.spearmanr(
            [row["loss_after_20"] * row["initial_loss"] for row in rows], steps
        ).statistic,
    }
    assert {name: found.interval(name).value for name in expected} == pytest.approx(expected)
    assert math.isnan(found.interval("naswot").value)
    other = order(rows, "1e-1", names=["forecast"]).interval("forecast").value
    assert other == pytest.approx(-expected["forecast"])

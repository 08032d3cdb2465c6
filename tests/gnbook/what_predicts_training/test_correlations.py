"""Rank correlations, draws of their intervals, and the rows that they order."""

import math

import numpy as np
import pytest
import torch
from gnbook.what_predicts_training.correlations import between, correlate, partial, pooled, within
from gnbook.what_predicts_training.table import order
from scipy.stats import rankdata, spearmanr

FAMILIES = [name for name in "abcdef" for _ in range(8)]


def columns(seed):
    """A predictor, steps with ties, and a control that tells something."""
    noise = np.random.default_rng(seed).standard_normal((3, len(FAMILIES)))
    return noise[0] + noise[1], np.round(10 * (noise[0] + 5)), noise[0] + noise[2]


def rank(values, steps):
    return spearmanr(values, steps).statistic


@pytest.mark.parametrize("seed", range(3))
def test_correlations_are_those_of_scipy(seed):
    predictor, steps, given = columns(seed)
    own = [slice(start, start + 8) for start in range(0, len(FAMILIES), 8)]
    ranks = [rankdata(column) for column in (predictor, steps, given)]
    basis = np.stack([np.ones(len(steps)), ranks[2]], 1)
    left = [column - basis @ np.linalg.lstsq(basis, column, rcond=None)[0] for column in ranks[:2]]
    chosen = np.concatenate([np.arange(len(FAMILIES))[own[i]] for i in np.random.default_rng(0).integers(6, size=6)])
    expected = {
        pooled: rank(predictor, steps),
        within: np.mean([rank(predictor[some], steps[some]) for some in own]),
        between: rank(*(column.reshape(-1, 8).mean(1) for column in ranks[:2])),
        partial: np.corrcoef(*left)[0, 1],
    }
    for statistic, value in expected.items():
        found = correlate({"p": predictor}, steps, FAMILIES, given=given, statistic=statistic, draws=1)
        assert found.value("p") == pytest.approx(value, abs=1e-10 if statistic is partial else 1e-12)
        if statistic is pooled:
            assert found.draws[0, 0] == pytest.approx(rank(predictor[chosen], steps[chosen]), abs=1e-12)


@pytest.mark.parametrize("censored", [None, math.inf, math.nan])
def test_what_did_not_arrive_is_last_and_tied(censored):
    steps, large = [5.0, 1.0, censored, 2.0, censored, 3.0], [5.0, 1.0, 1e9, 2.0, 1e9, 3.0]
    predictor = [5.0, 1.0, 6.0, 3.0, 7.0, 2.0]
    found = [
        correlate({"p": predictor, "q": some}, some, "aaabbb", given=predictor, statistic=pooled, draws=30)
        for some in (steps, large)
    ]
    assert np.array_equal(found[0].values, found[1].values) and found[0].interval("q").value == pytest.approx(1)
    assert np.array_equal(found[0].draws, found[1].draws, equal_nan=True)


def test_predictors_are_turned_to_slower_and_taken_for_their_goal():
    table = torch.rand(5, 12, generator=torch.Generator().manual_seed(1)).numpy()
    initial, kappa, share, other, steps = table
    names = "initial_loss", "kappa", "loss_after_20", "smallest", "steps_tenth"
    rows = [dict(zip(names, row, strict=True)) | {"family": "abc"[i % 3]} for i, row in enumerate(table.T)]
    for row in rows:
        row |= {"forecast_tenth": row["smallest"], "forecast_1e-1": -row["smallest"], "steps_1e-1": row["steps_tenth"]}
    expected = {"kappa": rank(kappa, steps), "smallest": -rank(other, steps), "forecast": rank(other, steps)}
    expected["absolute_after_20"] = rank(share * initial, steps)
    found = order(rows, names=[*expected, "naswot"])
    assert {name: found.value(name) for name in expected} == pytest.approx(expected)
    assert math.isnan(found.interval("naswot").value)
    assert order(rows, "1e-1", names=["forecast"]).value("forecast") == pytest.approx(-expected["forecast"])

"""Rank correlations, draws of their intervals, and the rows that they order."""

import math

import numpy as np
import pytest
import scipy
import torch
from gnbook.what_predicts_training.correlations import between, correlate, partial, pooled, within
from gnbook.what_predicts_training.table import order

FAMILIES = [name for name in "abcdef" for _ in range(8)]


def columns(seed, signal=1.0):
    """A predictor that tells something, one that tells nothing; steps with ties; a control that tells something."""
    noise = np.random.default_rng(seed).standard_normal((4, len(FAMILIES)))
    steps = np.round(10 * (noise[0] + 5)).tolist()
    return {"good": (signal * noise[0] + noise[1]).tolist(), "nothing": noise[2].tolist()}, steps, noise[0] + noise[3]


def correlations(drawn, statistic, **kwargs):
    predictors, steps, given = columns(drawn)
    return correlate(predictors, steps, FAMILIES, given=given.tolist(), statistic=statistic, **{"draws": 20} | kwargs)


@pytest.mark.parametrize("seed", range(2))
def test_pooled_correlations_are_those_of_scipy(seed):
    predictors, steps, _ = columns(seed)
    found = correlations(seed, pooled)
    for name, values in predictors.items():
        assert found.interval(name).value == pytest.approx(scipy.stats.spearmanr(values, steps).statistic, abs=1e-12)


def test_within_is_the_mean_over_families():
    predictors, steps, _ = columns(3)
    own = [slice(start, start + 8) for start in range(0, len(FAMILIES), 8)]
    by_hand = np.mean([scipy.stats.spearmanr(predictors["good"][some], steps[some]).statistic for some in own])
    assert correlations(3, within).interval("good").value == pytest.approx(by_hand, abs=1e-12)


def test_between_is_the_correlation_of_the_mean_ranks_of_families():
    predictors, steps, _ = columns(4)
    ranks = [scipy.stats.rankdata(column).reshape(-1, 8).mean(1) for column in (predictors["good"], steps)]
    found = correlations(4, between).interval("good")
    assert found.value == pytest.approx(scipy.stats.spearmanr(*ranks).statistic, abs=1e-12) and abs(found.value) < 0.99


@pytest.mark.parametrize("seed", range(2))
def test_partial_is_the_correlation_of_residuals_of_ranks(seed):
    predictors, steps, given = columns(seed)
    ranks = [scipy.stats.rankdata(column) for column in (predictors["good"], steps, given)]
    basis = np.stack([np.ones(len(steps)), ranks[2]], 1)
    left = [column - basis @ np.linalg.lstsq(basis, column, rcond=None)[0] for column in ranks[:2]]
    assert correlations(seed, partial).interval("good").value == pytest.approx(np.corrcoef(*left)[0, 1], abs=1e-10)


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


def test_a_draw_of_the_bootstrap_by_hand():
    predictors, steps, _ = columns(0)
    found = correlations(0, pooled, draws=1)
    chosen = np.random.default_rng(0).integers(6, size=6)
    some = np.concatenate([np.arange(8 * i, 8 * i + 8) for i in chosen])
    expected = scipy.stats.spearmanr(np.array(predictors["good"])[some], np.array(steps)[some]).statistic
    assert found.draws[0, 0] == pytest.approx(expected, abs=1e-12)


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

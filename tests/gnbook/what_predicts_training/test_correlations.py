"""Rank correlations, their intervals, and the marks that show them."""

import math

import numpy as np
import pytest
import scipy
from gnbook.what_predicts_training.correlations import between, correlate, partial, pooled, within
from gnbook.what_predicts_training.marks import side_by_side
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


def test_between_does_not_see_the_order_within():
    """The other half of Simpson's paradox: by families the order is right, and a family that is drawn twice is tied."""
    made = {"given": [0] * 6, "statistic": between, "draws": 50}
    found = correlate({"p": [3, 2, 1, 13, 12, 11]}, [1, 2, 3, 11, 12, 13], "aaabbb", **made)
    assert found.interval("p") == pytest.approx((1, 1, 1))
    assert np.isnan(found.draws).any()  # draws of one family twice


def test_a_family_in_which_nothing_differs_does_not_count():
    found = correlate({"p": [1, 2, 3, 1, 2, 3]}, [1, 2, 3, 7, 7, 7], "aaabbb", given=[0] * 6, statistic=within)
    assert found.interval("p").value == pytest.approx(1)


@pytest.mark.parametrize("seed", range(2))
def test_partial_is_the_correlation_of_residuals_of_ranks(seed):
    predictors, steps, given = columns(seed)
    ranks = [scipy.stats.rankdata(column) for column in (predictors["good"], steps, given)]
    basis = np.stack([np.ones(len(steps)), ranks[2]], 1)
    left = [column - basis @ np.linalg.lstsq(basis, column, rcond=None)[0] for column in ranks[:2]]
    assert correlations(seed, partial).interval("good").value == pytest.approx(np.corrcoef(*left)[0, 1], abs=1e-10)


def test_what_is_partialled_out_has_nothing_left_to_say():
    found = correlate({"p": [1, 2, 3, 4]}, [1, 2, 4, 3], "aabb", given=[10, 20, 30, 40], statistic=partial)
    assert all(map(math.isnan, found.interval("p")))


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


def test_what_is_the_same_for_all_has_no_correlation():
    found = correlate({"same": [1, 1, 1, 1], "p": [1, 2, 3, 4]}, [1, 2, 3, 4], "aabb", given=[0] * 4, statistic=pooled)
    assert all(map(math.isnan, found.interval("same"))) and math.isnan(found.difference("same", "p").value)


def test_a_draw_of_the_bootstrap_by_hand():
    predictors, steps, _ = columns(0)
    found = correlations(0, pooled, draws=1)
    chosen = np.random.default_rng(0).integers(6, size=6)
    some = np.concatenate([np.arange(8 * i, 8 * i + 8) for i in chosen])
    expected = scipy.stats.spearmanr(np.array(predictors["good"])[some], np.array(steps)[some]).statistic
    assert found.draws[0, 0] == pytest.approx(expected, abs=1e-12)


def test_a_family_drawn_twice_counts_twice_within():
    """In one family the correlation is 1, in the other -1, so that the mean tells which were drawn."""
    found = correlate(
        {"p": [1, 2, 3, 3, 2, 1]}, [1, 2, 3, 1, 2, 3], "aaabbb", given=[0] * 6, statistic=within, draws=40
    )
    chosen = np.random.default_rng(0).integers(2, size=(40, 2))
    assert np.allclose(found.draws[:, 0], (1 - 2 * chosen).mean(1))


def test_intervals_cover_the_value_and_are_narrower_for_a_difference_of_twins():
    predictors, steps, given = columns(1, signal=0.5)
    twin = [value + 1e-3 * i for i, value in enumerate(predictors["good"])]
    both = predictors | {"twin": twin}
    found = correlate(both, steps, FAMILIES, given=given.tolist(), statistic=pooled, draws=300)
    value, low, high = found.interval("good")
    difference = found.difference("good", "twin")
    assert low < value < high and difference.high - difference.low < (high - low) / 3
    assert difference.low <= found.interval("good").value - found.interval("twin").value <= difference.high
    apart = found.difference("good", "nothing")
    assert np.quantile(found.draws[:, 0] - found.draws[:, 1], 0.025) == apart.low


@pytest.mark.bad_input
def test_columns_of_different_lengths():
    with pytest.raises(ValueError, match=r"different lengths \(p: 3, steps: 2, families: 2, given: 2\)"):
        correlate({"p": [1, 2, 3]}, [1, 2], "ab", given=[1, 2], statistic=pooled)


@pytest.mark.bad_input
def test_a_single_family():
    with pytest.raises(ValueError, match="networks of 1 families; at least two"):
        correlate({"p": [1, 2]}, [1, 2], "aa", given=[1, 2], statistic=pooled)


def test_each_panel_has_the_correlations_of_its_title_and_none_where_nothing_was_run():
    some = [{"family": "ab"[i % 2], "initial_loss": -i, "kappa": i, "steps_tenth": i} for i in range(6)]
    names = ["kappa", "initial_loss"]
    found = order(some, names=names)
    left, right = side_by_side({"left": {"one": found, "two": None}, "right": {"one": None, "two": found}}, names)
    assert (left.get_title(), right.get_title()) == ("left", "right")
    for axis, run in ((left, "one"), (right, "two")):
        for container in axis.containers:
            drawn = container[0].get_xdata()
            assert drawn == pytest.approx([1, -1]) if container.get_label() == run else np.isnan(drawn).all()

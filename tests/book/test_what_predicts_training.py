"""The numbers in the text of "What predicts training" are those of its kept table."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from gnlib.chapters import results
from gnlib.chapters.what_predicts_training.correlations import between, pooled, within
from gnlib.chapters.what_predicts_training.families import FAMILIES, HELD_OUT, INITIALISATIONS
from gnlib.chapters.what_predicts_training.table import order, those

PAGE = Path(__file__).parents[2] / "notebooks" / "what-predicts-training.md"
OPTIMIZERS = ("descent", "momentum", "adam")
EARLY = ("MLP, tanh", "ViT", "ResNet")


@cache
def table():
    return results.kept("what-predicts-training")


def trained(optimizer="descent", loss="mse", n=50, **values):
    return those(table(), optimizer=optimizer, loss=loss, n=n, **values)


def correlation(name, statistic, rows):
    return order(rows, names=[name], statistic=statistic).interval(name).value


def correlations(name, statistic, **values):
    """For each way of training."""
    return [correlation(name, statistic, trained(optimizer, **values)) for optimizer in OPTIMIZERS]


def factors(**values):
    """How many times sooner than forecast networks arrive that do."""
    return np.array([r["forecast_tenth"] / r["steps_tenth"] for r in trained(**values) if r["steps_tenth"] is not None])


@pytest.fixture(scope="module")
def text():
    return " ".join(PAGE.read_text().split())


def test_what_was_run(text):
    assert f"{len(table()):,} trainings" in text
    assert {row["family"] for row in table()} == set(FAMILIES)
    assert {row["initialisation"] for row in table()} == set(INITIALISATIONS)
    assert {row["family"] for row in table() if row["held_out"]} == set(HELD_OUT)
    assert "each at the best of some six rates" in text and 5.5 < np.mean([row["rates"] for row in table()]) < 6.5


def test_which_networks_arrive(text):
    held_out = {family: trained(family=family) for family in HELD_OUT}
    arrived = {family: np.mean([row["steps_tenth"] is not None for row in rows]) for family, rows in held_out.items()}
    assert arrived.pop("CNN, BatchNorm") == 1 and max(arrived.values()) < 0.1
    assert "all those with BatchNorm arrive and hardly any other" in text
    many = {name: [r["initialisation"] for r in trained(name, n=1000) if r["steps_tenth"]] for name in OPTIMIZERS}
    assert many == {"descent": [], "momentum": [], "adam": ["default"] * 3} and len(trained("adam", n=1000)) == 9
    assert "On 1,000 images three of nine networks get to this goal within 400 steps, by Adam, those that" in text


def test_families_are_ordered_nearly_without_error():
    for name in ("kappa", "forecast", "forecast_kp"):
        descent, *others = correlations(name, between)
        assert descent > 0.95 and min(others) > 0.85
    assert max(correlations("initial_loss", between)) < 0.5


def test_initialisations_are_ordered_by_the_loss_at_the_start():
    assert min(correlations("initial_loss", within)) > 0.75
    assert np.abs(correlations("kappa", within)).max() < 0.1
    assert np.abs([correlations(name, within, loss="cross_entropy") for name in ("kappa", "forecast")]).max() < 0.55


def test_the_lead_of_the_forecast_over_all_networks():
    found = order(trained(), statistic=pooled)
    assert all(found.difference("forecast_kp", name).low > 0 for name in ("kappa", "initial_loss"))
    assert abs(found.difference("forecast_kp", "forecast").value) < 0.02
    momentum = order(trained("momentum"), statistic=pooled).difference("forecast_kp", "initial_loss")
    assert momentum.low < 0 < momentum.high


def test_cross_entropy(text):
    assert "order networks with a correlation of about 0.9" in text and "follows at about 0.8" in text
    assert correlations("forecast", pooled, loss="cross_entropy") == pytest.approx([0.9] * 3, abs=0.05)
    assert correlations("kappa", pooled, loss="cross_entropy") == pytest.approx([0.8] * 3, abs=0.07)


def test_networks_arrive_sooner_than_forecast(text):
    assert np.mean(factors() > 1) > 0.8
    moving = [row for row in trained() if row["steps_tenth"] is not None and row["drift"] > 1]
    right = np.abs(np.log([row["forecast_tenth"] / row["steps_tenth"] for row in moving])) < np.log(3)
    assert "for two networks out of three where the drift is above 1" in text and abs(np.mean(right) - 2 / 3) < 0.05
    slow = [
        factors(family=family, drift=row["drift"])
        for family in EARLY
        for row in trained(family=family)
        if row["drift"] < 1
    ]
    early = np.concatenate(slow)
    assert f"they arrive {min(early):.0f} to {max(early):.0f} times sooner than forecast" in text


def test_the_best_rate(text):
    best = [row["rate_tenth"] * row["largest"] / 2 for row in trained() if row["steps_tenth"] is not None]
    assert "The best rate is about twice the largest stable one" in text and 1.75 < np.median(best) < 2.5

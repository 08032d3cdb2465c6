"""The findings of "What predicts training" and of its further experiments, by their kept table."""

from functools import cache

import numpy as np
from gnbook import results
from gnbook.what_predicts_training.correlations import between, pooled, within
from gnbook.what_predicts_training.table import order, those

OPTIMIZERS = ("descent", "momentum", "adam")


@cache
def table():
    return results.kept("what-predicts-training")


def trained(optimizer="descent", loss="mse", n=50, **values):
    return those(table(), optimizer=optimizer, loss=loss, n=n, **values)


def correlations(name, statistic, **values):
    """For each way of training."""
    some = [trained(optimizer, **values) for optimizer in OPTIMIZERS]
    return [order(rows, names=[name], statistic=statistic).value(name) for rows in some]


def test_families_are_ordered_by_kappa_and_the_forecasts_and_not_by_the_loss_at_the_start():
    for name in ("kappa", "forecast"):
        for optimizer in ("descent", "adam"):
            span = order(trained(optimizer), names=[name], statistic=between).interval(name)
            assert span.low > 0.45 and span.high > 0.9
    assert max(correlations("initial_loss", between)) < 0.5


def test_initialisations_are_ordered_by_the_loss_at_the_start_and_not_by_kappa():
    losses, forecasts, kappas = (correlations(name, within) for name in ("initial_loss", "forecast", "kappa"))
    assert min(losses) > 0.6 and min(losses) > max(np.abs(kappas)) + 0.5 and np.abs(kappas).max() < 0.1 < min(forecasts)


def test_the_forecast_leads_over_all_networks_but_not_with_momentum():
    found = order(trained(), statistic=pooled)
    assert all(found.difference("forecast_kp", name).low > 0 for name in ("kappa", "initial_loss"))
    assert max(found.names, key=found.value) == "forecast_kp"
    assert abs(found.difference("forecast_kp", "forecast").value) < 0.02
    momentum = order(trained("momentum"), statistic=pooled).difference("forecast_kp", "initial_loss")
    assert momentum.low < 0 < momentum.high

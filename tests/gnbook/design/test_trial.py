"""The rows of the trial, and how speed-ups are read off them."""

import numpy as np
import pytest
import torch
from gnbook.design import trial
from gnbook.design.families import build
from gnbook.design.initialisations import SEARCHED, gained
from gnbook.design.trial import CHOICE, HORIZON, images, orders, rows_of, speedups
from gnbook.shared.tuning import Setting, constant_loss, tune

import gnlib

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def rows():
    here, there = images(6, 0, CPU), images(8, 10, CPU)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial, "SEARCHED", {CHOICE: SEARCHED[CHOICE]})
        return list(rows_of("wide and shallow", here, there, seeds=[3], optimizers=["descent"], horizon=60)), there


def test_gains_of_one_seed_are_trained_with_another(rows):
    found, there = rows
    (row,) = (r for r in found if r["initialisation"] == CHOICE)
    gains = torch.tensor([float(gain) for gain in row["gains"].split()], dtype=torch.float64)
    network = gained(build("wide and shallow", seed=3), gains, seed=3)
    condition = gnlib.condition_number(network, there.x)
    assert row["kappa"] == pytest.approx(condition.value, rel=1e-2)
    goals = {"tenth": constant_loss(there.y, "mse") / 10}
    best = tune(network, Setting(there.x, there.y, "mse", "descent", goals, 60), 2 / condition.largest).best("tenth")
    assert row["steps"] == pytest.approx(best[0], abs=1)


def table(steps, seconds=0.0):
    return [
        {
            "family": family,
            "seed": seed,
            "initialisation": name,
            "steps": value,
            "search_seconds": seconds if name == "x" else 0.0,
            "step_seconds": 0.1,
        }
        for (family, seed, name), value in steps.items()
    ]


def test_what_does_not_arrive_counts_as_the_horizon_and_a_search_as_its_steps():
    steps = {(f, 1, n): {"x": 40, "y": None}[n] for f in "ab" for n in "xy"}
    assert speedups(table(steps), "x", "y")[0] == pytest.approx(HORIZON / 40)
    assert speedups(table(steps, seconds=6.0), "x", "y", charged=True)[0] == pytest.approx(HORIZON / (40 + 60))
    assert speedups(table(steps, seconds=6.0), "x", "y")[0] == pytest.approx(HORIZON / 40)


def test_the_interval_is_that_of_drawing_families_and_then_seeds():
    logarithms = {"a": [0.0, 1.0], "b": [0.5, -0.3, 0.8], "c": [-1.0]}
    steps = {
        (f, s, n): 100 * np.exp(v) if n == "y" else 100
        for f, vs in logarithms.items()
        for s, v in enumerate(vs)
        for n in "xy"
    }
    draws, generator = [], np.random.default_rng(5)
    for _ in range(4000):
        some = generator.choice([*logarithms], 3)
        draws.append(np.mean([generator.choice(logarithms[f], len(logarithms[f])).mean() for f in some]))
    value, *ends = speedups(table(steps), "x", "y")
    assert value == pytest.approx(np.exp(np.mean([np.mean(vs) for vs in logarithms.values()])))
    assert np.log(ends) == pytest.approx(np.quantile(draws, [0.025, 0.975]), abs=0.1)


def test_a_column_orders_initialisations_family_by_family():
    steps = {("a", s, n): t for s in (1, 2) for n, t in zip("xyz", (10, 20, None), strict=True)}
    steps |= {("b", 1, n): None for n in "xyz"}
    rows = table(steps)
    for row in rows:
        place = "xyz".index(row["initialisation"])
        row["kappa"] = place if row["seed"] == 1 else -place
        row["initial_loss"] = 2.0**place
    assert orders(rows, "initial_loss") == {"a": pytest.approx(1)}
    assert orders(rows, "kappa") == {"a": pytest.approx(0)}

"""The rows of the trial, and how speed-ups are read off them."""

import pytest
import torch

import gnlib
from gnlib.chapters.design.families import build
from gnlib.chapters.design.initialisations import SEARCHED, UNTUNED, Data, gained
from gnlib.chapters.design.trial import HORIZON, images, rows_of, seconds_of_a_step, speedups
from gnlib.chapters.shared.tuning import Setting, constant_loss, tune

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def rows():
    here, there = images(6, 0, CPU), images(8, 10, CPU)
    return list(rows_of("wide and shallow", here, there, seeds=[3], optimizers=["descent", "adam"], horizon=60)), there


def test_a_row_for_each_way_and_optimiser(rows):
    found, _ = rows
    assert [(row["initialisation"], row["optimizer"]) for row in found] == [
        (name, optimizer) for name in (*UNTUNED, *SEARCHED) for optimizer in ("descent", "adam")
    ]
    for row in found:
        assert (row["gains"] is None) == (row["initialisation"] in UNTUNED) == (row["search_seconds"] == 0)
        assert row["step_seconds"] > 0 and not row["held_out"] and row["seed"] == 3


def test_gains_of_one_seed_are_trained_with_another(rows):
    found, there = rows
    (row,) = (r for r in found if r["initialisation"] == "forecast" and r["optimizer"] == "descent")
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


def test_speedups_are_geometric_means_with_families_drawn():
    ratios = {"a": 2.0, "b": 8.0, "c": 4.0}
    steps = {(f, s, n): 10 * (r if n == "y" else 1) for f, r in ratios.items() for s in (1, 2) for n in "xyz"}
    value, low, high = speedups(table(steps), "x", "y")
    assert value == pytest.approx(4) and 2 <= low < 4 < high <= 8
    assert speedups(table(steps), "y", "x")[0] == pytest.approx(1 / 4)
    assert speedups(table(steps), "x", "z") == pytest.approx((1, 1, 1))


def test_the_interval_grows_with_the_spread_of_families():
    def spread(factor):
        steps = {(f, 1, n): 100 * factor**i if n == "y" else 100 for i, f in enumerate("abcd") for n in "xy"}
        _, low, high = speedups(table(steps), "x", "y")
        return high / low

    assert 1 < spread(1.1) < spread(2.0)


def test_what_does_not_arrive_counts_as_the_horizon_and_a_search_as_its_steps():
    steps = {(f, 1, n): {"x": 40, "y": None}[n] for f in "ab" for n in "xy"}
    assert speedups(table(steps), "x", "y")[0] == pytest.approx(HORIZON / 40)
    assert speedups(table(steps, seconds=6.0), "x", "y", charged=True)[0] == pytest.approx(HORIZON / (40 + 60))
    assert speedups(table(steps, seconds=6.0), "x", "y")[0] == pytest.approx(HORIZON / 40)


def test_images_are_standardised_and_do_not_overlap():
    here, there = images(5, 0, CPU), images(5, 5, CPU)
    for x, y in (here, there):
        assert x.mean((0, 2, 3)).abs().max() < 1e-9 and y.sum().item() == 5
    both = images(10, 0, CPU)
    assert torch.equal(both.y, torch.cat([here.y, there.y])) and not torch.allclose(here.x, there.x)
    assert isinstance(here, Data)


def test_a_step_takes_some_time():
    data = images(5, 0, CPU)
    setting = Setting(data.x, data.y, "mse", "descent", {"goal": 0.01}, 50)
    assert 0 < seconds_of_a_step(build("MLP", seed=0), setting, 0.01) < 1

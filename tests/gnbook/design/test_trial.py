"""What networks begin with, the rows of both trials, and how speed-ups are read off them."""

import numpy as np
import pytest
import torch
from gnbook.design.families import build
from gnbook.design.in_batches import rows_in_batches
from gnbook.design.initialisations import NORM, SEARCHED, gained, initialised, unit_variance
from gnbook.design.layers import layers_of, weights_of
from gnbook.design.objectives import edge, log_time
from gnbook.design.trial import images, orders, speedups
from gnbook.shared.training import half_squared_error
from gnbook.shared.tuning import Setting, constant_loss, tune
from torch import nn

import gnlib
from tests.gnbook.design.helpers import condition

CPU = torch.device("cpu")
DATA = images(12, 0, CPU)


@pytest.fixture(scope="module")
def start():
    return initialised(build("MLP", seed=0), "Kaiming", DATA, seed=0)


@pytest.fixture(scope="module")
def found(start):
    return {name: find(start, DATA) for name, find in SEARCHED.items()}


@pytest.mark.parametrize("family", ["MLP", "CNN"])
def test_lsuv_has_a_variance_of_one_in_each_layer(family):
    network, seen = initialised(build(family, seed=0), "LSUV", DATA, seed=0), []
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            layer.register_forward_hook(lambda _module, _inputs, output: seen.append(output.var().item()))
    network(DATA.x)
    assert seen == pytest.approx([1.0] * len(weights_of(network)), abs=0.02)
    assert unit_variance(network, DATA.x) is network and not any(m._forward_pre_hooks for m in network.modules())


def test_each_search_improves_what_it_looks_at(start, found):
    layers, goal, none = layers_of(start, DATA.x), constant_loss(DATA.y, "mse") / 10, torch.zeros(3).double()

    def time(gains):
        return log_time(layers, gains.log(), DATA.y, goal)

    assert condition(layers.kernel(found["condition number"].log())) < 0.9 * condition(layers.kernel(none))
    assert time(found["forecast, product one"])[0] < time(none.exp())[0] - 0.1
    assert edge(time(found["common gain"])[1]) < 1e-4 < edge(time(none.exp())[1])
    both = [time(found[name]) for name in ("forecast", "common gain")]
    assert both[0][0] + edge(both[0][1]) < both[1][0] + edge(both[1][1])


def test_gradinit_keeps_the_gradient_within_its_bound(start, found):
    def norm(network):
        loss = half_squared_error(network(DATA.x[:8]), DATA.y[:8])  # two thirds, which it looks at
        gradients = torch.autograd.grad(loss, [*weights_of(network).values()])
        return sum(g.square().sum() for g in gradients).sqrt().item()

    assert norm(start) > 3 * NORM and norm(gained(build("MLP", seed=0), found["GradInit"], seed=0)) < 1.3 * NORM


def test_steps_are_those_of_the_best_rate():
    data = images(6, 0, CPU), images(60, 10, CPU), images(40, 80, CPU)
    asked = {"optimizers": ["descent"], "losses": ["cross_entropy"], "horizon": 120}
    rows = rows_in_batches("wide and shallow", *data, seeds=[3], **asked)
    (row,) = (row for row in rows if row["initialisation"] == "Kaiming")
    module = initialised(build("wide and shallow", seed=3), "Kaiming", data[1], seed=3)
    x, y = data[1].x, data[1].y.argmax(1)
    goals = {"half": constant_loss(y, "cross_entropy") / 2}
    setting = Setting(x, y, "cross_entropy", "descent", goals, 120, 50, 3)
    outcome = tune(module, setting, 1 / gnlib.condition_number(module, x[:50]).largest)  # another guess
    assert outcome.best("half") == (row["steps"], row["rate"])


def table(steps):
    return [
        {"family": family, "seed": seed, "initialisation": name, "steps": value}
        for (family, seed, name), value in steps.items()
    ]


def test_the_interval_is_that_of_drawing_families_and_then_seeds():
    logarithms = {"a": [0.0, 1.0], "b": [0.5, -0.3, 0.8], "c": [-1.0]}
    seeds = [(f, s, v) for f, vs in logarithms.items() for s, v in enumerate(vs)]
    steps = {(f, s, n): 100 * np.exp(v) if n == "y" else 100 for f, s, v in seeds for n in "xy"}
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

"""The numbers in the text of "What predicts training", and its findings."""

import re

import numpy as np
import pytest
import torch
from gnbook import results
from scipy.stats import rankdata, spearmanr
from torch import nn

import gnlib
from tests.pages.pages import descend, parameters, rows

PAGE = "what-predicts-training"
WAYS = "descent", "momentum", "adam"


def correlations():
    """By predictor and way of training: rank correlations between families, of those that arrive, and within them."""

    def printed(way, name):
        apart, _, few, own = rows(PAGE, f"{way} +{re.escape(name)} +between")[0]  # the second counts families
        return apart, few, own

    return {name: {way: printed(way, name) for way in WAYS} for name in ("kappa", "T*", "loss at the start")}


def by_scale():
    """By scale of the weights: loss at the start, κ, T*, steps, and steps without the outputs at the start."""
    return {scale: rest for scale, *rest in rows(PAGE, "scale ")}


def between_with_cross_entropy(column, way):
    """Return the rank correlation of the mean ranks of families."""
    keys = "family", "initialisation", "seed"
    start = {tuple(row[key] for key in keys): row for row in results.kept("waiting") if row["loss"] == "cross_entropy"}
    pairs, families = [], []
    for row in results.kept("what-predicts-training"):
        if (row["loss"], row["n"], row["optimizer"]) == ("cross_entropy", 50, way):
            before = start[tuple(row[key] for key in keys)][column]
            pairs.append([np.inf if value is None else value for value in (before, row["steps_tenth"])])
            families.append(row["family"])
    ranks = np.transpose([rankdata(column) for column in zip(*pairs, strict=True)])
    means = [ranks[np.array(families) == family].mean(0) for family in sorted({*families})]
    return spearmanr(*np.transpose(means)).statistic


def values():
    found = correlations()
    return {
        "networks": sum(row["loss"] == "mse" for row in results.kept("waiting")),
        "between_kappa": found["kappa"]["descent"][0],
        "arriving_kappa": found["kappa"]["descent"][1],
        "arriving_wait": found["T*"]["descent"][1],
        "momentum_kappa": found["kappa"]["momentum"][1],
        "momentum_wait": found["T*"]["momentum"][1],
        "entropy_kappa": [between_with_cross_entropy("kappa", way) for way in WAYS],
        "entropy_wait": [between_with_cross_entropy("lower", way) for way in WAYS],
        "most": parameters(PAGE)["most"],
    }


def test_kappa_chooses_architectures_and_the_loss_initialisations():
    found = correlations()
    for way in WAYS:
        apart, few, own = ({name: all_of[way][i] for name, all_of in found.items()} for i in (0, 1, 2))
        assert min(apart["kappa"], apart["T*"]) > 0.85 and apart["loss at the start"] < 0.5
        assert 0.75 < few["T*"] < 0.9 and (0.85 < few["kappa"] if way != "momentum" else few["kappa"] < 0.5)
        assert abs(apart["kappa"] - apart["T*"]) < 0.05
        assert abs(own["kappa"]) < 0.1 < 0.35 < own["T*"] < own["loss at the start"] > 0.75


def test_it_is_the_outputs_that_cost():
    loss, kappa, _, steps, without = map(np.array, zip(*by_scale().values(), strict=True))
    assert kappa.max() < 1.05 * kappa.min() and loss[-1] > 100 * loss[0]
    assert (np.diff(steps) > 0).all() and steps[-1] > 5 * steps[0] and without[-1] < 2 * without[0]


def test_the_wait_rises_with_the_steps():
    """The goal is a share of the loss at the start: the bound is below the steps with a factor of two to spare."""
    waits, steps = (np.array([row[i] for row in by_scale().values()]) for i in (2, 3))
    assert (np.diff(waits) > 0).all() and waits[-1] > 5 * waits[0]
    assert np.all((waits / 2 < steps) & (steps < 2 * waits))
    model, x, y = own_network(4)
    outputs, goal = model(x).detach(), y.square().sum() / 10
    start = (outputs - y).square().sum()
    own = gnlib.GaussNewton(model, x, y).waiting((goal / start).item()).lower
    without = gnlib.GaussNewton(model, x, outputs + y).waiting(0.1).lower
    assert own == pytest.approx(by_scale()[4][2], abs=1) and without < own / 3


def test_medians_rise_with_kappa():
    waits = [row for row in results.kept("waiting") if row["loss"] == "mse"]
    trial = {
        tuple(row[key] for key in ("family", "initialisation", "seed")): row["steps_tenth"] or 1000
        for row in results.kept("what-predicts-training")
        if (row["loss"], row["n"], row["optimizer"]) == ("mse", 50, "descent")
    }
    pairs = {}
    for row in waits:
        steps = trial[row["family"], row["initialisation"], row["seed"]]
        pairs.setdefault(row["family"], []).append((row["kappa"], steps))
    medians = np.array([np.median(some, 0) for some in pairs.values()])
    assert len(pairs) == 12 and spearmanr(*medians.T).statistic > 0.85


def own_network(scale, head=1):
    """The network of the page and its data, with weights and a last layer of other scales."""
    given = parameters(PAGE)
    x, labels = gnlib.load("cifar10", given["n"], stride=2)
    x = (x - x.mean()) / x.std()
    y = nn.functional.one_hot(labels, 10).double()
    torch.manual_seed(0)
    layers = nn.Linear(x.shape[1], given["width"]), nn.Linear(given["width"], 10)
    for layer, factor in zip(layers, (scale, scale * head), strict=True):
        layer.weight.data *= factor
    return nn.Sequential(layers[0], nn.ReLU(), layers[1]).double(), x, y - y.mean(0)


def test_large_outputs_move_the_weights():
    moved = {}
    for own in (False, True):
        model, x, y = own_network(4)
        target = y + model(x).detach() if own else y
        start, kernel = nn.utils.parameters_to_vector(model.parameters()).detach(), gnlib.GaussNewton(model, x).gram()
        assert descend(model, x, target, y.square().sum() / 10, 2 / torch.linalg.eigvalsh(kernel)[-1]) < 400
        away = (nn.utils.parameters_to_vector(model.parameters()) - start).norm().item()
        moved[own] = away, ((gnlib.GaussNewton(model, x).gram() - kernel).norm() / kernel.norm()).item()
    (far, much), (near, little) = moved[False], moved[True]
    assert far > 5 * near and much > 0.4 > 0.2 > little


def test_a_last_layer_of_zeros_repairs_half():
    scale, taken = max(by_scale()), []
    for over in (1, 2, 4):
        model, x, y = own_network(scale, head=0)
        kappa = gnlib.condition_number(model, x)
        taken.append(descend(model, x, y, y.square().sum() / 10, over / kappa.largest))
    loss, before, _, steps, without = by_scale()[scale]
    assert float(kappa) > 10 * before and without < min(taken) < 0.65 * steps and loss > 100

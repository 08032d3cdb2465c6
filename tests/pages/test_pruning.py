"""The numbers in the text of the lesson "Pruning", and its findings."""

import re

import numpy as np
from gnbook import results
from gnbook.pruning import recipes
from torch import nn

from tests.pages.laboratory.test_pruning import along
from tests.pages.pages import ROOT, checked_lines, parameters, rows

SOURCE = (ROOT / "notebooks/pruning.md").read_text()
KINDS = {"whole": "none", "weights pruned": "weights", "every tensor pruned": "every tensor"}


def kept(network, pruning, column):
    """Return a column of the kept table at each epoch, for what is whole or lacks 80 %."""
    return [*along(network, (pruning, 0.8 if pruning != "none" else 0.0), column).values()]


def runs():
    """By kind: rank, condition number and last loss of each small network."""
    return {kind: rows("pruning", rf"{name}: (?=\d+ directions)") for name, kind in KINDS.items()}


def values():
    given = parameters("pruning")
    layers = [layer for layer in recipes.recipe("ResNet20").network().modules() if isinstance(layer, nn.Conv2d)]
    (images,) = {row["published_images"] for row in results.kept("pruning-further") if row["network"] == "ResNet20"}
    alarm = kept("ViT", "weights", "kappa")[0] / kept("ViT", "none", "kappa")[0]
    return {
        "percent": 100 * given["fraction"],
        "layers": 1 + sum(layer.kernel_size == (3, 3) for layer in layers),
        "images": images,
        "rate": float(re.search(r"SGD\(net\.parameters\(\), lr=([\d.]+)", SOURCE)[1]),
        "eigenvalues": 10 * int(re.search(r"x\[:(\d+)\]", SOURCE)[1]),
        "alarm": alarm,
    }


def test_the_kept_trainings():
    """Weights cost nothing at the paper's size, and every tensor nearly everything."""
    shown = [line for line in checked_lines("pruning") if "at epoch" in line]
    ends = {kind: kept("ResNet20", kind, "loss")[-1] for kind in KINDS.values()}
    assert shown == [f"{name}: loss {ends[kind]:.3f} at epoch 100" for name, kind in KINDS.items()]
    assert ends["weights"] < 1.2 * ends["none"] and ends["every tensor"] > 10 * ends["none"]


def test_the_large_networks_differ_in_kappa_alone():
    """Before training, with the statistics of the batch, as the page prints them from the kept table."""
    (whole,), (weights,), (tensors,) = (rows("pruning", f"ResNet20, {name}:") for name in KINDS)
    assert whole[0] == weights[0] == tensors[0] and tensors[1] > 100 * max(whole[1], weights[1])


def test_rank_and_loss_tell_the_small_networks_apart_and_kappa_does_not():
    ranks, kappas, losses = (np.array([[row[i] for row in runs()[kind]] for kind in KINDS.values()]) for i in range(3))
    assert (ranks[:2] == values()["eigenvalues"]).all() and (ranks[2] < values()["eigenvalues"] / 2).all()
    assert kappas[1, 0] < kappas[0, 0] and kappas[1, 1] > kappas[0, 1] and kappas[2].min() < kappas[0, 0]
    assert losses[0].max() < 0.01 < losses[1].max() < 0.2 and losses[2].min() > 1

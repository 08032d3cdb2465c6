"""The findings of "Pruning before training", by its kept tables and by its own outputs."""

from functools import cache

import numpy as np
import pytest
from gnbook import results
from gnbook.pruning.printed import ratios  # noqa: F401 (the scorecard has it)
from gnbook.pruning.trainings import Training, path, trainings

NOTHING, WEIGHTS, EVERY = THREE = ("none", 0.0), ("weights", 0.8), ("every tensor", 0.8)


@cache
def trained():
    return trainings(results.kept("pruning-further"))


def along(network, what, column, columns="kept"):
    """Return a column of the kept table at each epoch."""
    return dict(zip(*path(trained()[Training(network, *what)], column, columns), strict=True))


def kept(network, column, columns="kept"):
    """At each epoch, for the whole network, without 80 % of the weights, and without 80 % of every tensor."""
    found = [along(network, what, column, columns) for what in THREE]
    return {epoch: tuple(of[epoch] for of in found) for epoch in found[0]}


def test_the_transformer_tells_weights_from_tensors():
    whole, weights, every = kept("ViT", "loss")[200]
    assert weights < whole < every
    kappa = kept("ViT", "kappa")
    assert kappa[0] == tuple(sorted(kappa[0])) and kappa[0][1] / kappa[0][0] == pytest.approx(10, abs=0.5)
    assert all((every < whole) == (epoch >= 80) for epoch, (whole, _, every) in kappa.items())
    both = kept("ViT", "kappa", "all")
    assert all((max(pruned) < whole) == (epoch >= 40) for epoch, (whole, *pruned) in both.items())


def test_the_residual_network_needs_its_scales():
    """Figures 1 and 14: slow and badly conditioned without scales, neither without weights."""
    loss, by_all, by_kept = kept("ResNet20", "loss"), kept("ResNet20", "kappa", "all"), kept("ResNet20", "kappa")
    whole, _, every = loss[100]
    assert all(weights < 1.15 * whole for whole, weights, _ in loss.values()) and every > 10 * whole
    orders = [np.log10(by_all[epoch][2] / by_all[epoch][0]) for epoch in (0, 100)]
    assert orders == pytest.approx([3, 5], abs=0.5)
    assert all(weights < whole < every for whole, weights, every in [*by_kept.values()][1:])


def test_the_connected_network_does_not():
    whole, weights, every = kept("FcNN", "loss")[200]
    assert every == pytest.approx(weights, rel=0.03) and weights > 10 * whole
    assert all(max(pruned) < 1.4 * whole for whole, *pruned in kept("FcNN", "kappa").values())
    for kind, share in (("kept", 1 / 20), ("all", 1 / 4)):
        ends = [kept("FcNN", end, kind)[0] for end in ("largest", "smallest")]
        assert [weights / whole for whole, weights, _ in ends] == pytest.approx([share] * 2, rel=0.1)

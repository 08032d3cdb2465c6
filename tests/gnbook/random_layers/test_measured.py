"""What the pages on random layers measure: blocks of a small ResNet20, descent before a layer, regions, histograms."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from gnbook.random_layers import blocks, bounds, descent, histograms, regions
from gnbook.random_layers import matrices as rm
from gnbook.shared.local_affine import local_affine
from torch import nn

X, _ = blocks.load(6, 8)


def test_statistics_are_those_of_all_images():
    net = blocks.fresh("usual start", 0, 2)
    fixed = blocks.with_statistics_of(net, X)
    first = next(module for module in fixed.modules() if isinstance(module, nn.BatchNorm2d))
    seen = net.layers[0](X)  # by the first normalisation
    assert torch.allclose(first.running_mean, seen.mean((0, 2, 3)))
    assert torch.allclose(first.running_var, seen.var((0, 2, 3)))
    assert not fixed.training and net.training and next(net.buffers()).eq(0).all()


def test_rows_are_of_the_matrices_of_the_blocks():
    net = blocks.with_statistics_of(blocks.fresh("usual start", 0, 2), X)
    rows = blocks.examine(net, X[:2])
    assert [row["block"] for row in rows] == [block for block in range(1, 8) for _ in range(2)]
    z, block = net.layers[:3](X[:1]).detach(), net.layers[3]
    branch = local_affine(nn.Sequential(block.branch, nn.Flatten()), z[0]).matrix
    kept = (branch + torch.eye(len(branch)))[:, z.flatten() > 0]
    assert rows[0]["norm"] == pytest.approx(torch.linalg.matrix_norm(branch, 2).item())
    assert rows[0]["skip"] == pytest.approx(torch.linalg.cond(kept).item())


LAYERS = descent.small_layers(5, seed=0)


@pytest.mark.parametrize("target, wanted", [("easy", LAYERS[3]), ("random", torch.eye(5, dtype=torch.float64))])
def test_it_is_gradient_descent_itself(target, wanted):
    """The mean over targets U X with U as given is that of a X with independent entries of variance one: X = I."""
    layer, losses = LAYERS[3], []
    rate, learned = torch.linalg.matrix_norm(layer, 2) ** -2, torch.zeros_like(layer)
    for _ in range(20):
        learned = learned - rate * layer.mT @ (layer @ learned - wanted)
        losses.append(((layer @ learned - wanted).square().sum() / wanted.square().sum()).item())
    assert descent.loss_after(np.arange(1, 21), layer, target) == pytest.approx(np.array(losses))


@pytest.mark.parametrize("target", ["random", "easy"])
def test_the_steps_are_the_first_at_which_the_loss_is_there(target):
    for layer in LAYERS[:4]:
        steps = descent.steps_to(1e-3, layer, target)
        assert descent.loss_after(steps, layer, target) <= 1e-3 < descent.loss_after(steps - 1, layer, target)


def test_a_region_deletes_rows_of_the_layer_and_columns_of_all():
    w = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    on, first = torch.tensor([True, True]), torch.tensor([True, False])
    assert regions.relu_condition(w, on, on) == pytest.approx(1)
    assert regions.relu_condition(w, first, on) == pytest.approx((5**0.5 + 1) / (5**0.5 - 1))
    assert regions.relu_condition(w, first, first) == pytest.approx(1)


def test_the_search_finds_the_worst_region_of_three_units_or_a_local_one():
    w = rm.draw(3, 1, generator=torch.Generator().manual_seed(0))[0] / 2
    every = [torch.tensor(active) for active in product([False, True], repeat=6) if any(active[3:])]
    values = [regions.relu_condition(w, active[:3], active[3:]) for active in every]
    found = max(regions.worst_region(w, active.clone()) for active in every)
    assert found == pytest.approx(max(values))


def test_it_measures_what_it_names():
    found = histograms.measure(6, 3, seed=1)
    generator = torch.Generator().manual_seed(1006)
    layers = rm.draw(6, histograms.BLOCK, generator=generator)[:3] / (2 * math.sqrt(48))
    assert found["kappa 2"] == pytest.approx(torch.linalg.cond(layers + torch.eye(6, dtype=torch.float64)).numpy())
    assert found["kappa W"] == pytest.approx(torch.linalg.cond(layers).numpy())
    assert found["norm"] == pytest.approx(torch.linalg.matrix_norm(layers, 2).numpy())
    known = bounds.riedi_lemma_36(rm.extremes(layers))
    assert found["sharper"] * found["kappa 2"] == pytest.approx(known.sharper.numpy())
    assert found["bound"] * found["kappa 2"] == pytest.approx(known.symmetric.numpy())
    assert set(histograms.BINS) < set(found) and {len(values) for values in found.values()} == {3}

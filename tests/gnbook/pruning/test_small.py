"""The small set-ups that two pages on pruning share."""

import numpy as np
import pytest
import torch
from gnbook.pruning import experiment, jacobians, recipes, small
from gnbook.pruning.masks import apply_masks, magnitude_masks
from torch import nn

import gnlib

X, TARGETS = small.images(8, 4)


def test_images_are_standardised_channel_by_channel():
    assert X.shape == (8, 3, 8, 8) and X.dtype == torch.float64 and TARGETS.sum(1).tolist() == [1.0] * 8
    assert X.mean((0, 2, 3)).tolist() == pytest.approx([0.0] * 3, abs=1e-12)
    assert X.std((0, 2, 3)).tolist() == pytest.approx([1.0] * 3)
    assert small.images(2, 3)[0].shape == (2, 3, 11, 11)  # every third of 32 pixels


def test_a_pruned_mlp_is_the_whole_one_with_zeros():
    whole, pruned = small.mlp(1, 8, [5, 4]), small.mlp(1, 8, [5, 4], 0.5)
    apply_masks(whole, magnitude_masks(whole, 0.5))
    assert torch.equal(whole(X), pruned(X)) and not torch.equal(pruned(X), small.mlp(1, 8, [5, 4])(X))
    assert sum(p.numel() for p in small.mlp(0, 8, [5, 4]).parameters()) == 192 * 5 + 5 * 4 + 4 * 10


def test_several_rates_are_plain_gradient_descent():
    """With a batch of all images an epoch is one step; two networks side by side are what each is alone."""
    how = {"hidden": [6], "epochs": 3, "batch_size": 8}
    both = small.losses_at(0.5, [(0.0, 0), (0.5, 1)], X, TARGETS, **how)
    for (fraction, seed), found in zip([(0.0, 0), (0.5, 1)], both, strict=True):
        net = small.mlp(seed, 8, [6], fraction)
        descent = torch.optim.SGD(net.parameters(), lr=0.5)
        for _ in range(3):
            descent.zero_grad()
            nn.functional.mse_loss(net(X), TARGETS).backward()
            descent.step()
        assert found == pytest.approx(nn.functional.mse_loss(net(X), TARGETS).item(), rel=1e-9)


def test_the_spectrum_has_gaps_where_directions_are_lost():
    values = small.spectrum_of_resnet20(X, 8, "every tensor", 0.8)
    net, masks = experiment.pruned(
        recipes.recipe("ResNet20", 8, recipes.FULL | {"channels": 8}), "every tensor", 0.8, seed=0
    )
    ends = jacobians.ends(jacobians.with_statistics_of_batches(net, masks, [X], torch.float64)["kept"], torch.float64)
    assert len(values) == 80 and np.isfinite(values).sum() == ends.rank < 80
    assert values[0] == pytest.approx(ends.largest) and np.nanmin(values) == pytest.approx(ends.smallest)
    whole = small.spectrum_of_resnet20(X, 8, "weights", 0.0)
    assert np.isfinite(whole).all() and (np.diff(whole) <= 0).all()


def test_columns_alone_raise_no_eigenvalue():
    """Weyl: without the columns of what is pruned no eigenvalue is larger, at one and the same zeros."""
    pruned, zeros = small.mlp(0, 8, [6], 0.5), small.mlp(0, 8, [6])
    with torch.no_grad():
        for weight, masked in zip(zeros.parameters(), magnitude_masks(zeros, 0.5).values(), strict=True):
            weight.mul_(masked)
    below, above = (torch.linalg.eigvalsh(gnlib.GaussNewton(net, X).gram()) for net in (pruned, zeros))
    assert (below <= above + 1e-10 * above[-1]).all() and below[-1] < above[-1]

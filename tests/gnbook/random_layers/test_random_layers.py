"""The law of Tracy and Widom, and what the pages measure of blocks and of descent."""

import numpy as np
import pytest
import torch
from gnbook.random_layers import blocks, descent
from gnbook.random_layers import matrices as rm
from gnbook.shared.local_affine import local_affine
from torch import nn

from tests.oracles import identity


def test_published_moments_of_tracy_and_widom():
    s, step = np.linspace(-10, 12, 441, retstep=True)  # the trapezoidal rule is exact for what vanishes at both ends
    density = rm.tracy_widom_pdf(s) * step
    mean = (s * density).sum()
    mass, variance, third, fourth = (((s - mean) ** k * density).sum() for k in (0, 2, 3, 4))
    assert mass == pytest.approx(1, abs=1e-12)
    # Bornemann (2010): mean, variance, skewness, excess kurtosis
    published = (-1.2065335745820, 1.607781034581, 0.29346452408, 0.1652429384)
    assert (mean, variance, third / variance**1.5, fourth / variance**2 - 3) == pytest.approx(published, abs=1e-9)


def test_rows_are_of_the_matrices_of_the_blocks_normalised_by_all_images():
    (x, _), drawn = blocks.load(6, 8), blocks.fresh("usual start", 0, 2)
    net = blocks.with_statistics_of(drawn, x)
    seen = drawn.layers[0](x)  # by the first normalisation
    first = next(module for module in net.modules() if isinstance(module, nn.BatchNorm2d))
    torch.testing.assert_close(first.running_mean, seen.mean((0, 2, 3)))
    torch.testing.assert_close(first.running_var, seen.var((0, 2, 3)))
    rows = blocks.examine(net, x[:2])
    assert [row["block"] for row in rows] == [block for block in range(1, 8) for _ in range(2)]
    z, block = net.layers[:3](x[:1]).detach(), net.layers[3]
    branch = local_affine(nn.Sequential(block.branch, nn.Flatten()), z[0]).matrix
    kept = (branch + torch.eye(len(branch)))[:, z.flatten() > 0]
    assert rows[0]["norm"] == pytest.approx(torch.linalg.matrix_norm(branch, 2).item())
    assert rows[0]["skip"] == pytest.approx(torch.linalg.cond(kept).item())


@pytest.mark.parametrize("target", descent.TARGETS)
def test_it_is_gradient_descent_itself(target):
    """The mean over targets U X with U as given is that of a X with independent entries of variance one: X = I."""
    layer, losses = descent.small_layers(5, seed=0)[3], []
    wanted = layer if target == "easy" else identity(5)
    rate, learned = torch.linalg.matrix_norm(layer, 2) ** -2, torch.zeros_like(layer)
    for _ in range(20):
        learned = learned - rate * layer.mT @ (layer @ learned - wanted)
        losses.append(((layer @ learned - wanted).square().sum() / wanted.square().sum()).item())
    assert descent.loss_after(np.arange(1, 21), layer, target) == pytest.approx(np.array(losses))
    assert descent.median_steps(losses[12] * (1 + 1e-9), layer[None], target, 0.0) == 13

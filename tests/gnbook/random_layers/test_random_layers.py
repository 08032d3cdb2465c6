"""Random matrices, bounds for layers of them, and what the pages measure of blocks, descent and regions."""

import math

import numpy as np
import pytest
import torch
from gnbook.random_layers import blocks, descent, histograms
from gnbook.random_layers import bounds as layers
from gnbook.random_layers import matrices as rm
from gnbook.shared.local_affine import local_affine
from gnbook.shared.skips import kaiming_skip_limits, skip_bounds
from torch import nn

from tests.gnbook.random_layers.helpers import generator


@pytest.mark.parametrize("seed", range(8))
def test_the_sharper_bound_is_that_of_one_layer_with_a_skip(seed):
    n = seed % 5 + 1
    weight = rm.draw(n, 1, generator=generator(seed))[0] * 10.0 ** (seed % 3 - 1.5)
    interval, bounds = skip_bounds(weight, 1.0), layers.riedi_lemma_36(rm.extremes(weight))
    assert bounds.sharper.item() == pytest.approx(interval.upper / interval.lower if interval.lower else math.inf)
    assert bounds.sharper <= min(bounds.norm, bounds.symmetric) * (1 + 1e-12)


def test_limits_are_infinite_up_to_their_thresholds():
    for field, threshold in (("norm", 0.5**0.5), ("symmetric", 1.0), ("sharper", 0.5)):
        assert getattr(layers.riedi_theorem_38(threshold * (1 - 1e-9)), field) == math.inf
        assert getattr(layers.riedi_theorem_38(threshold * 1.01), field) < math.inf
    assert layers.skip_condition_limit(0.99 / 8**0.5) == math.inf
    assert layers.all_regions_limit(0.4999) == math.inf and layers.all_regions_limit(0.51) < math.inf
    for r in (0.4, 1.0, 2.0, 7.0):
        root = math.sqrt(1 + 64 * r**2)
        square = (root + 3) ** 3 * (root - 1) / ((root - 3) ** 3 * (root + 1))
        assert layers.skip_condition_limit(r) == pytest.approx(math.sqrt(square))
        low, high = kaiming_skip_limits(r * math.sqrt(8))
        assert high / low == pytest.approx(math.sqrt(square))


# Bornemann (2010): mean, variance, skewness, excess kurtosis.
MOMENTS = (-1.2065335745820, 1.607781034581, 0.29346452408, 0.1652429384)


def test_published_moments_of_tracy_and_widom():
    s, step = np.linspace(-10, 12, 441, retstep=True)  # the trapezoidal rule is exact for what vanishes at both ends
    density = rm.tracy_widom_pdf(s) * step
    mean = (s * density).sum()
    central = [((s - mean) ** k * density).sum() for k in (0, 2, 3, 4)]
    ours = (mean, central[1], central[2] / central[1] ** 1.5, central[3] / central[1] ** 2 - 3)
    assert central[0] == pytest.approx(1, abs=1e-12)
    assert ours == pytest.approx(MOMENTS, abs=1e-9)


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (7, 4, 4), (2, 3, 5, 5)])
def test_extremes_are_those_of_each_matrix(shape):
    matrices = torch.randn(shape, generator=generator(3), dtype=torch.float64)
    found = rm.extremes(matrices)
    for index in np.ndindex(shape[:-2]):
        one = matrices[index]
        squares = torch.linalg.eigvalsh(one.mT @ one).clamp_min(0).sqrt()
        tau = np.linalg.eigvalsh((one + one.mT).numpy())
        expected = [squares[-1], squares[0], tau[-1], tau[0]]
        assert [value[index].item() for value in found] == pytest.approx([float(e) for e in expected], abs=1e-7)
    assert all(value.shape == shape[:-2] for value in found)


def test_scalings_in_closed_form():
    assert rm.symmetric_scaling(2) == pytest.approx((4, math.sqrt(2) / 2 ** (1 / 6)))
    assert rm.singular_scaling(2) == pytest.approx(((1 + 2**0.5) ** 2, (1 + 2**0.5) * (1 + 2**-0.5) ** (1 / 3)))


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


def test_it_measures_what_it_names():
    found = histograms.measure(6, 3, seed=1)
    generator = torch.Generator().manual_seed(1006)
    weights = rm.draw(6, histograms.BLOCK, generator=generator)[:3] / (2 * math.sqrt(48))
    assert found["kappa 2"] == pytest.approx(torch.linalg.cond(weights + torch.eye(6, dtype=torch.float64)).numpy())
    assert found["kappa W"] == pytest.approx(torch.linalg.cond(weights).numpy())
    assert found["norm"] == pytest.approx(torch.linalg.matrix_norm(weights, 2).numpy())
    known = layers.riedi_lemma_36(rm.extremes(weights))
    assert found["sharper"] * found["kappa 2"] == pytest.approx(known.sharper.numpy())
    assert found["bound"] * found["kappa 2"] == pytest.approx(known.symmetric.numpy())
    assert set(histograms.BINS) < set(found) and {len(values) for values in found.values()} == {3}

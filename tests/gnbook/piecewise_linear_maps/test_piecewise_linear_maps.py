"""The partition of the plane, small networks by layers, and their trainings."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from gnbook.piecewise_linear_maps.descent import descend, start
from gnbook.piecewise_linear_maps.networks import blocks, classifier
from gnbook.piecewise_linear_maps.partition import partition
from gnbook.shared.piecewise_linear import Layer, affine_products
from gnbook.shared.training import half_squared_error, one_hot

import gnlib
from tests.oracles import normal

NETWORKS = [  # widths, slope, skip of the last layer
    ([2, 3, 4, 4], 0.1, 0.0),
    ([2, 1, 1], 0.1, 0.0),
    ([2, 5, 5], 0.0, 0.0),
    ([2, 4, 4, 4], -1.0, 1.0),
    ([2, 2, 2, 2, 2], -0.5, -1.0),
    ([2, 12], 0.1, 0.0),
    ([2, 3, 1, 3], 0.3, 0.0),
]


@pytest.mark.parametrize("case", NETWORKS, ids=lambda c: "-".join(map(str, c[0])))
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("rounded", [False, True])
def test_cells_cover_the_box_once_and_are_where_the_network_is_the_affine_map_that_they_have(case, seed, rounded):
    (widths, slope, skip), layers = case, []
    for i, (fan_in, out) in enumerate(pairwise(widths)):
        weight, bias = normal(out, fan_in, seed=100 * seed + i), 0.5 * normal(out, seed=100 * seed + 50 + i)
        if rounded:  # to halves: many lines through one point, parallel and vanishing ones
            weight, bias = (2 * weight).round() / 2, (2 * bias).round() / 2
        layers.append(Layer(weight, bias, slope, skip if i == len(widths) - 2 else 0.0))
    for depth, cells in enumerate(partition(layers, (-2.0, 2.0, -1.5, 2.5)), start=1):
        assert sum(cell.area for cell in cells) == pytest.approx(16, rel=1e-9)
        assert len({cell.active for cell in cells}) == len(cells)
        for cell in cells:
            inside = torch.from_numpy(cell.vertices.mean(0))
            piece = affine_products(layers[:depth], inside)
            np.testing.assert_allclose(cell.matrix, piece.matrix.numpy(), rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(cell.offset, piece.offset.numpy(), rtol=1e-10, atol=1e-12)
            assert cell.area > 0 and cell.active == tuple(tuple((d == 1).tolist()) for d in piece.slopes)
            corners = torch.from_numpy(cell.vertices)  # with them a convex cell is in the region
            assert piece.contains(inside + (1 - 1e-9) * (corners - inside)).all()


X, TARGETS = normal(12, 5, seed=3), one_hot(torch.arange(12) % 10, 10)
SLOPE = 0.1


def test_the_blocks_are_those_of_the_library_and_add_up():
    net = classifier(5, 1, SLOPE)
    found, whole = blocks(net, X), gnlib.GaussNewton(net, X).gram()
    assert (sum(block.gram for block in found) - whole).abs().max() < 1e-12 * whole.abs().max()
    for index, block in enumerate(found):
        for other, layer in enumerate(net):
            layer.weight.requires_grad_(other == index)
        assert (block.gram - gnlib.GaussNewton(net, X).gram()).abs().max() < 1e-12 * block.gram.abs().max()
        assert block.kappa == pytest.approx(gnlib.condition_number(net, X).value, rel=1e-6)


@pytest.mark.parametrize("layer", [1, 2, 3, None])
def test_it_is_what_automatic_differentiation_does(layer):
    net = classifier(5, 0, SLOPE)
    run = start(net, blocks(net, X), X, layer)
    curves = descend([start(classifier(5, 1, SLOPE), blocks(net, X), X, 1), run], TARGETS, SLOPE, 20)
    for step in range(21):
        value = half_squared_error(net(X), TARGETS)
        assert abs(value.item() - curves[step, 1]) < 1e-9
        gradients = torch.autograd.grad(value, [part.weight for part in net])
        with torch.no_grad():
            for part, gradient, rate in zip(net, gradients, run.rates, strict=True):
                part.weight -= rate * gradient
    assert curves[-1, 1] < curves[0, 1]

"""The partition of the plane: its cells are the regions of the network, and leave nothing out."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from gnbook.piecewise_linear_maps.partition import partition
from gnbook.shared.piecewise_linear import Layer, affine_products

from tests.oracles import normal

BOX = (-2.0, 2.0, -1.5, 2.5)
AREA = 16.0
NETWORKS = [  # widths, slope, skip of the last layer
    ([2, 3, 4, 4], 0.1, 0.0),
    ([2, 1, 1], 0.1, 0.0),
    ([2, 5, 5], 0.0, 0.0),
    ([2, 4, 4, 4], -1.0, 1.0),
    ([2, 2, 2, 2, 2], -0.5, -1.0),
    ([2, 12], 0.1, 0.0),
    ([2, 3, 1, 3], 0.3, 0.0),
]
networks = pytest.mark.parametrize("case", NETWORKS, ids=lambda c: "-".join(map(str, c[0])))
seeds = pytest.mark.parametrize("seed", range(2))


def layers_of(case, seed, rounded=False):
    widths, slope, skip = case
    found = []
    for i, (fan_in, out) in enumerate(pairwise(widths)):
        weight, bias = normal(out, fan_in, seed=100 * seed + i), 0.5 * normal(out, seed=100 * seed + 50 + i)
        if rounded:  # to halves: many lines through one point, parallel and vanishing ones
            weight, bias = (2 * weight).round() / 2, (2 * bias).round() / 2
        found.append(Layer(weight, bias, slope, skip if i == len(widths) - 2 else 0.0))
    return found


@networks
@seeds
@pytest.mark.parametrize("rounded", [False, True])
def test_cells_cover_the_box_once_and_are_where_the_network_is_the_affine_map_that_they_have(case, seed, rounded):
    layers = layers_of(case, seed, rounded)
    for depth, cells in enumerate(partition(layers, BOX), start=1):
        assert sum(cell.area for cell in cells) == pytest.approx(AREA, rel=1e-9)
        assert len({cell.active for cell in cells}) == len(cells)
        for cell in cells:
            inside = torch.from_numpy(cell.vertices.mean(0))
            piece = affine_products(layers[:depth], inside)
            np.testing.assert_allclose(cell.matrix, piece.matrix.numpy(), rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(cell.offset, piece.offset.numpy(), rtol=1e-10, atol=1e-12)
            signs = [tuple((slopes == 1).tolist()) for slopes in piece.slopes]
            assert cell.area > 0 and tuple(signs) == cell.active
            for vertex in torch.from_numpy(cell.vertices):  # with its corners a convex cell is in the region
                assert piece.contains(inside + (1 - 1e-9) * (vertex - inside))

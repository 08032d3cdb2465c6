"""The partition of the plane, against exact rational arithmetic."""

from fractions import Fraction
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from gnbook.piecewise_linear_maps.partition import draw_partition, partition
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
seeds = pytest.mark.parametrize("seed", range(3))


def layers_of(case, seed, rounded=False):
    widths, slope, skip = case
    found = []
    for i, (fan_in, out) in enumerate(pairwise(widths)):
        weight, bias = normal(out, fan_in, seed=100 * seed + i), 0.5 * normal(out, seed=100 * seed + 50 + i)
        if rounded:  # to halves: many lines through one point, parallel and vanishing ones
            weight, bias = (2 * weight).round() / 2, (2 * bias).round() / 2
        found.append(Layer(weight, bias, slope, skip if i == len(widths) - 2 else 0.0))
    return found


def flat(cell):
    return tuple(sign for signs in cell.active for sign in signs)


def rational_areas(layers, box):
    """Area by sign pattern, in exact arithmetic, by clipping the box half-plane by half-plane."""
    left, right, bottom, top = map(Fraction, box)
    corners = [(left, bottom), (right, bottom), (right, top), (left, top)]
    cells = [(corners, (), [[Fraction(1), Fraction(0)], [Fraction(0), Fraction(1)]], [Fraction(0), Fraction(0)])]
    for weight, bias, slope, skip in layers:
        w, b = [[Fraction(v) for v in row] for row in weight.tolist()], [Fraction(v) for v in bias.tolist()]
        refined = []
        for polygon, signs, matrix, offset in cells:
            rows = [[sum(a * m[c] for a, m in zip(r, matrix, strict=True)) for c in (0, 1)] for r in w]
            levels = [sum(a * o for a, o in zip(r, offset, strict=True)) + c for r, c in zip(w, b, strict=True)]
            parts = [(polygon, ())]
            for row, level in zip(rows, levels, strict=True):
                cut = []
                for vertices, sides in parts:
                    for side in (1, -1):
                        kept = clip(vertices, [side * v for v in row], side * level)
                        if area(kept) > 0:
                            cut.append((kept, (*sides, side > 0)))
                    if not any(row) and level == 0:  # both sides are everything; count it once, as negative
                        cut = cut[:-2] + cut[-1:]
                parts = cut
            for vertices, sides in parts:
                d = [Fraction(1) if s else Fraction(slope) for s in sides]
                new = [[d[i] * v for v in rows[i]] for i in range(len(d))]
                shift = [d[i] * levels[i] for i in range(len(d))]
                if skip:
                    new = [
                        [v + Fraction(skip) * u for v, u in zip(*p, strict=True)] for p in zip(new, matrix, strict=True)
                    ]
                    shift = [v + Fraction(skip) * u for v, u in zip(shift, offset, strict=True)]
                refined.append((vertices, signs + sides, new, shift))
        cells = refined
    return {signs: area(polygon) for polygon, signs, *_ in cells}


def clip(polygon, normal_vector, level):
    heights = [normal_vector[0] * x + normal_vector[1] * y + level for x, y in polygon]
    kept = []
    for i, (point, h) in enumerate(zip(polygon, heights, strict=True)):
        j = (i + 1) % len(polygon)
        if h >= 0:
            kept.append(point)
        if h * heights[j] < 0:
            t = h / (h - heights[j])
            kept.append(tuple(a + t * (b - a) for a, b in zip(point, polygon[j], strict=True)))
    return kept


def area(polygon):
    pairs = zip(polygon, polygon[1:] + polygon[:1], strict=True)
    return sum(a[0] * b[1] - a[1] * b[0] for a, b in pairs) / 2 if polygon else 0


@networks
@seeds
def test_the_map_of_a_cell_is_the_network_inside(case, seed):
    layers = layers_of(case, seed)
    for cell in partition(layers, BOX)[-1]:
        inside = torch.from_numpy(cell.vertices.mean(0))
        if cell.area > 1e-6:
            piece = affine_products(layers, inside)
            np.testing.assert_allclose(cell.matrix, piece.matrix.numpy(), rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(cell.offset, piece.offset.numpy(), rtol=1e-10, atol=1e-12)
            assert piece.contains(inside) and all(
                tuple((s == 1).tolist()) == active for s, active in zip(piece.slopes, cell.active, strict=True)
            )


@networks
@seeds
@pytest.mark.parametrize("rounded", [False, True])
def test_areas_in_exact_arithmetic(case, seed, rounded):
    layers = layers_of(case, seed, rounded)
    for depth, cells in enumerate(partition(layers, BOX), start=1):
        exact, found = rational_areas(layers[:depth], BOX), {flat(cell): cell.area for cell in cells}
        assert sum(exact.values()) == AREA and len(found) == len(cells)
        assert set(found) == {signs for signs, size in exact.items() if size > 1e-10}
        assert found == pytest.approx({signs: float(exact[signs]) for signs in found}, rel=1e-9, abs=1e-12)


def test_layers_without_kinks_cut_nothing():
    layers = [Layer(normal(3, 2, seed=1), normal(3, seed=2)), Layer(normal(3, 3, seed=3), normal(3, seed=4), 1.0, 2.0)]
    ((first,), (second,)) = partition(layers, BOX)
    assert first.area == pytest.approx(AREA) and len(second.vertices) == 4


def test_the_drawing_shows_each_cell_once_and_the_edges_of_each_layer():
    steps = partition(layers_of(NETWORKS[0], 0), BOX)
    figure, axis = plt.subplots()
    draw_partition(axis, steps)
    faces, *edges = axis.collections
    assert len(faces.get_paths()) == len(steps[-1]) and len(edges) == len(steps) - 1
    assert axis.get_xlim() == BOX[:2] and axis.get_ylim() == BOX[2:]
    assert len({tuple(color) for color in faces.get_facecolor()}) == len(steps[0])
    plt.close(figure)


@pytest.mark.bad_input
def test_what_is_no_plane_and_empty_boxes_are_refused():
    layer, plane = Layer(normal(3, 4, seed=1), normal(3, seed=2), 0.1), Layer(normal(4, 2, seed=3), normal(4, seed=4))
    with pytest.raises(ValueError, match="the first layer takes 4 inputs; a partition is one of a plane"):
        partition([layer])
    assert len(partition([plane, layer])) == 2
    for box in ((1, -1, -1, 1), (0, 0, 0, 1), (0, 1, 0, float("inf")), (float("nan"), 1, 0, 1)):
        with pytest.raises(ValueError, match="left < right and bottom < top"):
            partition([plane], box)

"""The regions of a plane in which a network is affine, as polygons (Riedi 2022, figure 3).

Each unit of a layer is affine on each region that the layers before have left, so that its kink is a straight line
there: it cuts the convex polygon in two, or misses it. No point is sampled.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float
from matplotlib.collections import PolyCollection

from gnbook.figures import COLORS
from gnbook.shared.piecewise_linear import Layer, in_double

TOUCHING = 1e-12  # how near to a line, relative to the sizes that are subtracted, a vertex is taken to be on it


class Cell(NamedTuple):
    """A region of the plane and the affine map that a network is there."""

    vertices: Float[np.ndarray, "v 2"]  # of the convex polygon, counterclockwise
    active: tuple[tuple[bool, ...], ...]  # for each layer, which units are positive inside
    matrix: Float[np.ndarray, "m 2"]  # the network, up to the last of these layers, is matrix @ x + offset
    offset: Float[np.ndarray, " m"]

    @property
    def area(self) -> float:
        """Area of the polygon."""
        x, y = (self.vertices - self.vertices[0]).T
        return 0.5 * float(x @ np.roll(y, -1) - y @ np.roll(x, -1))


def partition(layers: Sequence[Layer], box: tuple[float, float, float, float] = (-1, 1, -1, 1)) -> list[list[Cell]]:
    """Return the regions that the first layer, the first two, and so on, divide a rectangle into.

    The box is left, right, bottom and top. Cells that differ in the sign of a unit are two cells even where the network
    is the same affine map on both, but for units of slope 1, which have no kink.
    """
    left, right, bottom, top = box
    corners = np.array([[left, bottom], [right, bottom], [right, top], [left, top]], dtype=float)
    cells, steps = [Cell(vertices=corners, active=(), matrix=np.eye(2), offset=np.zeros(2))], []
    for layer in in_double(layers):
        cells = [part for cell in cells for part in _refined(cell, layer)]
        steps.append(cells)
    return steps


def draw_partition(axis: plt.Axes, steps: Sequence[Sequence[Cell]]) -> None:
    """Draw the cells after the last of these layers, coloured by their cell in the first, and all edges by layer."""

    def colour(cell: Cell) -> tuple[float, ...]:  # by signs, so that a region keeps its own when a line moves
        return plt.get_cmap("Pastel1")(sum(2**i for i, positive in enumerate(cell.active[0]) if positive) % 9)

    for number, cells in reversed(list(enumerate(steps))):
        last = number == len(steps) - 1
        faces = [colour(cell) for cell in cells] if last else "none"
        edges = dict(edgecolors=COLORS[number % len(COLORS)], linewidths=max(2.4 - 0.7 * number, 0.6))
        axis.add_collection(PolyCollection([cell.vertices for cell in cells], facecolors=faces, **edges))
    corners = np.concatenate([cell.vertices for cell in steps[0]])
    axis.set(xlim=(corners[:, 0].min(), corners[:, 0].max()), ylim=(corners[:, 1].min(), corners[:, 1].max()))
    axis.set(aspect="equal", xlabel="first input", ylabel="second input")
    axis.grid(visible=False)


def _refined(cell: Cell, layer: Layer) -> Iterator[Cell]:
    """Yield the parts of a cell that one more layer makes."""
    weight, bias = layer.weight.cpu().numpy(), layer.bias.cpu().numpy()
    normals, levels = weight @ cell.matrix, weight @ cell.offset + bias
    reach = np.abs(cell.matrix) @ np.abs(cell.vertices).max(0) + np.abs(cell.offset)
    rounding = TOUCHING * (np.abs(weight) @ reach + np.abs(bias))
    parts = [(cell.vertices, ())]
    for unit in zip(normals, levels, rounding, strict=True):
        parts = [(half, (*signs, sign)) for polygon, signs in parts for half, sign in _cut(polygon, *unit, layer.slope)]
    for polygon, signs in parts:
        slopes = np.where(signs, 1.0, layer.slope)
        matrix, offset = slopes[:, None] * normals, slopes * levels
        if layer.skip:
            matrix, offset = matrix + layer.skip * cell.matrix, offset + layer.skip * cell.offset
        yield Cell(vertices=polygon, active=(*cell.active, signs), matrix=matrix, offset=offset)


def _cut(
    polygon: Float[np.ndarray, "v 2"], normal: Float[np.ndarray, " 2"], level: float, rounding: float, slope: float
) -> Iterator[tuple[np.ndarray, bool]]:
    """Yield the parts of a polygon beside the line `normal @ x + level = 0`, and whether they are above it."""
    heights = polygon @ normal + level
    heights[np.abs(heights) <= rounding] = 0
    if slope == 1 or (heights >= 0).all() or (heights <= 0).all():
        yield polygon, bool(heights.sum() > 0)
        return
    following, next_heights = np.roll(polygon, -1, axis=0), np.roll(heights, -1)
    for side in (1, -1):
        vertices = []
        for a, b, h, k in zip(polygon, following, side * heights, side * next_heights, strict=True):
            if h >= 0:
                vertices.append(a)
            if h * k < 0:
                vertices.append(a + h / (h - k) * (b - a))
        yield np.array(vertices), side > 0

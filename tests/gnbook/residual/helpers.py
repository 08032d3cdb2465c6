"""Skips and layers for the tests of residual networks."""

import torch
from hypothesis import strategies as st

from tests.oracles import identity, with_skip
from tests.strategies import gaussian, matrices, seeds, sizes, symmetric

skips = st.sampled_from([1e-3, 0.1, 0.25, 1 / 3, 0.5, 2**-0.5, 1.0, 2.0, 3.0, 10.0, 1e3])


def shifted(weights, skip):
    return [with_skip(w, skip) for w in weights]


@st.composite
def layers(draw, square=False):
    """Draw a layer: of any kind, symmetric, antisymmetric, or with an eigenvalue that a skip removes."""
    rows, columns = draw(st.tuples(sizes, sizes))
    columns = rows if square else columns
    kind = draw(st.sampled_from(["any", "any", "symmetric", "antisymmetric", "near the skip"]))
    size = min(rows, columns)
    if kind == "any":
        return draw(matrices(rows, columns))
    if kind == "symmetric":
        block = draw(symmetric(size))
    elif kind == "antisymmetric":
        block = gaussian(draw(seeds), size, size)
        block = block - block.mT
    else:
        block = 1e-3 * gaussian(draw(seeds), size, size) - draw(skips) * identity(size)
    return torch.nn.functional.pad(block, (0, columns - size, 0, rows - size))

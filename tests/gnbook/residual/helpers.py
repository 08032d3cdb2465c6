"""Layers with a skip for the tests, and oracles of their singular values."""

import math

import torch
from hypothesis import strategies as st

from tests.oracles import singular, with_skip
from tests.strategies import diagonal, gaussian, matrices, orthogonal, seeds, sizes, spectra, symmetric, terms

skips = st.sampled_from([1e-3, 0.1, 0.25, 1 / 3, 0.5, 2**-0.5, 1.0, 2.0, 3.0, 10.0, 1e3])
shapes = st.tuples(sizes, sizes)


def shifted(weights, skip):
    return [with_skip(w, skip) for w in weights]


def block_eigenvalues(weight):
    """Return the eigenvalues of W + W^T for the leading square block, ascending."""
    size = min(weight.shape)
    block = weight[:size, :size]
    return torch.linalg.eigvalsh(block + block.mT)


def slack(weight, skip):
    """Return a bound on the rounding of squared singular values."""
    return 1e-12 * (torch.linalg.matrix_norm(weight) + abs(skip)) ** 2 + 1e-280


@st.composite
def layers(draw, square=False):
    """Draw a layer: of any kind, symmetric, antisymmetric, or with an eigenvalue that a skip removes."""
    rows, columns = draw(shapes)
    columns = rows if square else columns
    kind = draw(st.sampled_from(["any", "any", "symmetric", "antisymmetric", "near the skip"]))
    size = min(rows, columns)
    weight = torch.zeros(rows, columns, dtype=torch.float64)
    if kind == "any":
        return draw(matrices(rows, columns))
    if kind == "symmetric":
        block = draw(symmetric(size))
    elif kind == "antisymmetric":
        block = gaussian(draw(seeds), size, size)
        block = block - block.mT
    else:
        block = 1e-3 * gaussian(draw(seeds), size, size) - draw(skips) * torch.eye(size, dtype=torch.float64)
    weight[:size, :size] = block
    return weight


@st.composite
def aligned(draw, fewest=2, most=4, regular=False):
    """Draw square symmetric positive semi-definite layers with the same eigenvectors, in the same order."""
    n, depth = draw(sizes), draw(st.integers(fewest, most))
    q = orthogonal(draw(seeds), n)
    values = [draw(spectra(n, lowest=0)).sort(descending=True).values for _ in range(depth)]
    if regular:
        values = [v + 1e-3 * v[0].clamp_min(1e-3) for v in values]
    return [(q * v) @ q.mT for v in values], values


def product_of_ratios(weights, skip, layer):
    ratios = [
        ((s[0] + skip) / (s[-1] + skip)).item() ** 2 for i, w in enumerate(weights) if i != layer for s in [singular(w)]
    ]
    return math.prod(ratios)


def product_of_conditions(weights, layer):
    largest, alpha = terms(weights)
    return (largest[layer] / alpha[layer]).item()


REFLECTED = [diagonal([1, -1], 3, 2), diagonal([1], 1, 3)]  # d = 2, m = 3, k = 1: singular vectors coincide

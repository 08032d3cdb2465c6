"""Products of a matrix and a matrix of blocks, entry by block: matrices below and above them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import gaussian, instances, matrices, seeds


@st.composite
def factors(draw):
    """Draw features (n, m) and derivatives (n, k, w), singular, scaled and repeated ones among them."""
    n, k, m, w = (draw(st.integers(1, most)) for most in (5, 3, 6, 12))
    features, derivatives = draw(matrices(n, m)), draw(matrices(n * k, w)).view(n, k, w)
    if draw(st.booleans()):
        grades = torch.logspace(0, -6, n, dtype=torch.float64)
        features, derivatives = features * grades[:, None], derivatives * grades.flip(0)[:, None, None]
    return features, derivatives


def product(a, b):
    """Blocks a_ij B_ij, for B of shape (n k, n k)."""
    k = b.shape[-1] // a.shape[-1]
    return a.repeat_interleave(k, -2).repeat_interleave(k, -1) * b


def own(b, n):
    """The diagonal blocks of a matrix, and zeros."""
    k = b.shape[-1] // n
    return b * torch.block_diag(*[torch.ones(k, k, dtype=b.dtype)] * n)


def grams(features, derivatives):
    flat = derivatives.flatten(0, 1)
    return features @ features.mT, flat @ flat.mT


def ends(matrix):
    values = torch.linalg.eigvalsh(matrix)
    return values[0], values[-1]


def assert_below(smaller, larger, scale=0.0):
    scale = max(scale, smaller.abs().max().item(), larger.abs().max().item())
    assert torch.linalg.eigvalsh(larger - smaller)[0].item() >= -1e-12 * scale * len(larger)


@pytest.mark.claim("Products of blocks", verdict="holds")
@instances
@given(factors())
def test_the_product_is_between_four_block_diagonal_matrices(problem):
    a, b = grams(*problem)
    n, whole = len(a), product(a, b)
    diagonal = torch.kron(a.diagonal().diag(), torch.eye(len(b) // n, dtype=a.dtype))
    (a_least, a_most), (b_least, b_most) = ends(a), ends(b)
    for below, above in ((a_least * own(b, n), a_most * own(b, n)), (b_least * diagonal, b_most * diagonal)):
        assert_below(below, whole)
        assert_below(whole, above)


@pytest.mark.claim("Four corners", verdict="holds")
@instances
@given(factors(), seeds)
def test_what_is_below_and_above_both_factors_makes_four_bounds(problem, seed):
    (a, b), draw = grams(*problem), torch.Generator().manual_seed(seed)
    n, k = len(a), len(b) // len(a)
    d, e = (
        torch.rand(n, generator=draw, dtype=a.dtype).add(0.1).diag(),
        own(torch.rand(n * k, n * k, generator=draw, dtype=a.dtype) + 3 * torch.eye(n * k), n),
    )
    e = e @ e.mT
    (d_least, d_most), (e_least, e_most) = (relative_ends(*pair) for pair in ((a, d), (b, e)))
    whole = product(a, b)

    def corner(p, q):
        return product(p * d, b) + product(a, q * e) - product(p * d, q * e)

    assert torch.equal(corner(1, 1), own(corner(1, 1), n))
    size = (d_most * e_most * d.max() * e.max()).item()  # of what cancels in a corner
    for below in (corner(d_least, e_least), corner(d_most, e_most)):
        assert_below(below, whole, size)
    for above in (corner(d_most, e_least), corner(d_least, e_most)):
        assert_below(whole, above, size)


def relative_ends(matrix, metric):
    """The least and the largest number that a multiple of the metric has to be below and above a matrix."""
    root = torch.linalg.cholesky(metric)
    return ends(
        torch.linalg.solve_triangular(root, torch.linalg.solve_triangular(root, matrix, upper=False).mT, upper=False)
    )


def scaled(features, derivatives):
    """Rows of norm one, and blocks of orthonormal rows, differentiable; for a batch."""
    features = features / features.norm(dim=-1, keepdim=True)
    values, vectors = torch.linalg.eigh(derivatives @ derivatives.mT)
    inverse_root = (vectors / values.sqrt()[..., None, :]) @ vectors.mT
    return features, inverse_root @ derivatives


def gaps(features, derivatives):
    """How far both ends of the factors and of the product are from one, for a batch of scaled factors."""
    flat = derivatives.flatten(-3, -2)
    a, b = features @ features.mT, flat @ flat.mT
    return [(1 - v[..., 0], v[..., -1] - 1) for v in map(torch.linalg.eigvalsh, (a, b, product(a, b)))]


@pytest.mark.claim("Two gaps", verdict="holds")
@instances
@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 6), st.integers(0, 9), seeds)
def test_the_gaps_of_a_product_are_at_most_products_of_gaps(n, k, m, more, seed):
    problem = gaussian(seed, n, m), gaussian(seed + 1, n, k, k + more)
    (a, a_top), (b, b_top), (low, high) = gaps(*scaled(*problem))
    assert low <= min(a * b, a_top * b_top) + 1e-12
    assert high <= min(a_top * b, a * b_top) + 1e-12


@pytest.mark.claim("What a layer mends", verdict="holds")
@instances
@given(factors())
def test_a_product_is_no_worse_than_its_features_but_for_the_spread_of_the_blocks(problem):
    a, b = grams(*problem)
    n, k = len(a), len(b) // len(a)
    blocks = torch.linalg.eigvalsh(torch.stack([b[i * k : (i + 1) * k, i * k : (i + 1) * k] for i in range(n)]))
    (a_least, a_most), (least, most) = ends(a), ends(product(a, b))
    slack = 1e-12 * (a_most * blocks.max()).item() + 1e-300
    assert most <= a_most * blocks.max() + slack and least >= a_least * blocks.min() - slack

"""Bounds on the kernel of deep networks, on hostile chains and under attack.

Products of a matrix and a matrix of blocks, entry by block: matrices below and above them.
"""

import math

import pytest
import torch
from gnbook.deep_nonlinear.bound import chain_bound, schur_ends
from gnbook.deep_nonlinear.chain import Layer, kernel, layers_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gnlib.linear.bounds import zhao_lemma_2
from gnlib.linear.moment import SecondMoment
from tests.gnbook.deep_nonlinear.chains import chain, chains, jacobian, linear, spectrum
from tests.strategies import INSTANCES, attack, exact, gaussian, instances, matrices, seeds

hostile = settings(instances, max_examples=2 * INSTANCES)


def assert_within(ends, values):
    """Both ends of a spectrum are within their bounds, up to rounding of the largest."""
    slack = 1e-12 * values[0].item() + 1e-300
    assert ends.smallest.lower - slack <= values[-1].item() <= ends.smallest.upper + slack
    assert ends.largest.lower - slack <= values[0].item() <= ends.largest.upper + slack


@pytest.mark.claim("Kernel of a chain", verdict="holds")
@pytest.mark.claim("Bound for any depth", verdict="holds")
@pytest.mark.claim("Sharper bound for any depth", verdict="holds")
@pytest.mark.claim("Condition number from below", verdict="holds")
@hostile
@given(chains())
def test_the_spectrum_is_within_the_bounds_of_which_the_sharper_are_never_worse_than_the_others(problem):
    network, x = problem
    layers, values, n, rows = layers_of(network, x), spectrum(network, x), len(x), jacobian(network, x)
    torch.testing.assert_close(kernel(layers), rows @ rows.mT / n, rtol=0, atol=1e-12 * values[0].item() + 1e-300)
    ours, plain = chain_bound(layers).ends, schur_ends(layers)
    assert_within(ours, values)
    assert_within(plain, values)
    slack = 1e-12 * plain.largest.upper + 1e-300
    assert ours.smallest.lower >= plain.smallest.lower - slack
    assert ours.largest.upper <= plain.largest.upper + slack
    products = [(f @ f.mT, torch.einsum("ikm,jlm->ikjl", g, g)) for f, g in layers]
    least, most = (sum(best_of_four(a, b)[end] for a, b in products) / n for end in (0, 1))
    assert ours.smallest.lower >= least - slack and ours.largest.upper <= most + slack


def best_of_four(a, b):
    """For one layer: the better of the two bounds of each end that the first claim of the page gives."""
    n, k = b.shape[:2]
    own = torch.linalg.eigvalsh(torch.einsum("ikil->ikl", b))
    first, second = (torch.linalg.eigvalsh(matrix).clamp_min(0) for matrix in (a, b.reshape(n * k, n * k)))
    diagonal = a.diagonal()
    least = max(first[0] * own[:, 0].min().clamp_min(0), second[0] * diagonal.min())
    most = min(first[-1] * own[:, -1].max(), second[-1] * diagonal.max())
    return least.item(), most.item()


@pytest.mark.claim("Equal correlations", verdict="holds")
@instances
@given(st.integers(1, 6), st.integers(1, 3), st.integers(1, 4), seeds)
def test_where_all_samples_are_alike_the_bounds_are_the_ends(n, k, depth, seed):
    """Features, and derivatives, at equal angles of at most ninety degrees; outputs that are apart and alike."""
    generator = torch.Generator().manual_seed(seed)
    layers = []
    for _ in range(depth):
        r, q, size, slope = torch.rand(4, generator=generator, dtype=torch.float64)
        apart, ones = torch.eye(n, dtype=torch.float64), torch.ones(n, 1, dtype=torch.float64)
        features = size * torch.cat([(1 - r).sqrt() * apart, r.sqrt() * ones], 1)
        derivatives = slope * torch.cat([(1 - q).sqrt() * apart, q.sqrt() * ones], 1)
        outputs = torch.eye(k, dtype=torch.float64)
        layers.append(Layer(features, torch.einsum("im,kl->ikml", derivatives, outputs).flatten(2)))
    layers.append(Layer(layers[0].features, torch.eye(k, dtype=torch.float64).expand(n, k, k)))
    values = torch.linalg.eigvalsh(kernel(layers))
    ends = chain_bound(layers).ends
    assert ends.smallest == pytest.approx((values[0].item(),) * 2, rel=1e-9, abs=1e-13)
    assert ends.largest == pytest.approx((values[-1].item(),) * 2, rel=1e-9)


@pytest.mark.claim("Linear chains", verdict="holds")
@instances
@given(st.integers(1, 5), st.integers(0, 2), st.integers(1, 3), st.integers(1, 4), seeds)
def test_for_linear_chains_it_is_never_worse_than_lemma_2(n, more, k, depth, seed):
    d = n + more
    widths = [d, *(d + (seed >> i) % 3 for i in range(depth - 1)), k]
    network, x = chain(widths, nn.Identity, seed=seed % 2**31), gaussian(seed % 2**31 + 7, n, d)
    weights = [module.weight.detach() for module in network if isinstance(module, nn.Linear)]
    lemma = zhao_lemma_2(weights, SecondMoment.from_data(x)).first
    layers = layers_of(network, x)
    for ends in (schur_ends(layers), chain_bound(layers).ends):
        assert ends.condition.upper <= lemma * (1 + 1e-8) or lemma == math.inf


@pytest.mark.claim("Norms for blocks", verdict="fails")
def test_norms_of_derivatives_do_not_replace_their_blocks():
    """One sample, two outputs, a first layer of zeros: K is W W^T, and norms know its trace alone."""
    network = nn.Sequential(linear(1, 2, 0, scale=0.0), nn.Identity(), linear(2, 2, 1))
    with torch.no_grad():
        network[2].weight.copy_(exact([[2, 0], [0, 1]]))
    layers = layers_of(network, exact([[1]]))
    values = torch.linalg.eigvalsh(kernel(layers))
    assert values.tolist() == [1, 4]
    ends = [torch.linalg.eigvalsh(f @ f.mT) for f, _ in layers]
    squares = [g.square().sum((1, 2)) for _, g in layers]
    top = max(sum(e[-1] * s[i] for e, s in zip(ends, squares, strict=True)) for i in range(1))
    bottom = min(sum(e[0] * s[i] for e, s in zip(ends, squares, strict=True)) for i in range(1))
    assert top / bottom == 1 and chain_bound(layers).ends.condition == (4, 4)


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


@pytest.mark.claim("Two gaps", verdict="holds")
@pytest.mark.parametrize("n, k", [(2, 1), (3, 2)])
@pytest.mark.parametrize("end", ["low", "high"])
def test_an_attack_attains_the_products_of_gaps_and_does_not_pass_them(n, k, end):
    def excess(features, derivatives):
        (a, a_top), (b, b_top), (low, high) = gaps(*scaled(features, derivatives))
        if end == "low":
            return low / torch.minimum(a * b, a_top * b_top) - 1
        return high / torch.minimum(a_top * b, a * b_top) - 1

    assert -1e-2 < attack(excess, gaussian(1, 32, n, 3), gaussian(2, 32, n, k, 6)) < 1e-7

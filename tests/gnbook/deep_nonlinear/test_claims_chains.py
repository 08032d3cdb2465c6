"""Bounds on the kernel of deep networks, on hostile chains and under attack."""

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
from tests.strategies import INSTANCES, exact, gaussian, instances, seeds

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

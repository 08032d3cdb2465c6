"""Heads, shared weights, normalisation and preconditioners: the bound on chains beyond them."""

import pytest
import torch
from gnbook.deep_nonlinear.chain import layers_of
from gnbook.deep_nonlinear.head import head_floor
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from tests.gnbook.deep_nonlinear.chains import ACTIVATIONS, chain, chains, jacobian, linear, spectrum
from tests.strategies import derivatives, gaussian, instances, seeds


@pytest.mark.claim("Linear head", verdict="holds")
@instances
@given(chains())
def test_the_head_of_a_chain_holds_its_smallest_eigenvalue_up(problem):
    network, x = problem
    values = spectrum(network, x)
    assert head_floor(network, x, network[-1]) <= values[-1].item() + 1e-12 * values[0].item() + 1e-300


def assert_between_its_positions(outputs, weight, inputs, products):
    """The products are at all positions, of which each has a row of features."""
    by_weight, by_products = derivatives(outputs, [weight, products]).split([weight.numel(), products.numel()], 1)
    each, features = by_products.reshape(len(by_products), -1, products.shape[-1]), inputs.flatten(0, -2)
    whole, reach = by_weight @ by_weight.mT, torch.einsum("apw,bpw->ab", each, each)
    formula = torch.einsum("apw,pq,bqw->ab", each, features @ features.mT, each)
    ends = torch.linalg.eigvalsh(features @ features.mT)[[0, -1]].clamp_min(0)
    slack = 1e-11 * (ends[1] * reach.abs().max()).item() + 1e-300
    torch.testing.assert_close(formula, whole, rtol=0, atol=slack)
    assert torch.linalg.eigvalsh(whole - ends[0] * reach)[0] >= -slack
    assert torch.linalg.eigvalsh(ends[1] * reach - whole)[0] >= -slack
    return reach


@pytest.mark.claim("Shared weights and samples that mix", verdict="holds")
@instances
@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.sampled_from(ACTIVATIONS), seeds)
def test_weights_that_are_shared_among_positions(n, k, size, activation, seed):
    """A convolution on a line, as a layer of weights on patches. Samples do not mix, and the sum is block diagonal."""
    patches = gaussian(seed, n, 6).unfold(1, size, 1)
    weight = gaussian(seed + 1, 4, size).requires_grad_()
    products = patches @ weight.mT
    outputs = activation()(products.clone()).flatten(1) @ gaussian(seed + 2, 4 * patches.shape[1], k)
    reach = assert_between_its_positions(outputs, weight, patches, products).view(n, k, n, k)
    for i in range(n):
        for j in range(n):
            assert i == j or not reach[i, :, j].any()


@pytest.mark.claim("Shared weights and samples that mix", verdict="holds")
@instances
@given(st.integers(2, 5), st.integers(1, 3), st.integers(1, 6), seeds)
def test_samples_that_batch_normalisation_mixes(n, k, d, seed):
    x = gaussian(seed, n, d)
    weight = gaussian(seed + 1, 4, d).requires_grad_()
    products = x @ weight.mT
    outputs = functional.batch_norm(products, None, None, training=True).tanh() @ gaussian(seed + 2, 4, k)
    assert_between_its_positions(outputs, weight, x, products)


@pytest.mark.claim("Layer normalisation", verdict="holds")
@instances
@given(st.integers(1, 5), st.integers(2, 6), st.booleans(), seeds)
def test_features_behind_a_normalisation_are_of_one_norm(n, m, bias, seed):
    normalised = nn.LayerNorm(m, eps=0.0, elementwise_affine=False)
    network = nn.Sequential(linear(3, m, seed % 999), nn.Tanh(), normalised, linear(m, 2, 1, bias=bias))
    features = layers_of(network, gaussian(seed, n, 3))[1].features
    torch.testing.assert_close(features.square().sum(1), features.new_full((n,), m + bias), rtol=1e-9, atol=0)
    torch.testing.assert_close(features[:, :m].sum(1), features.new_zeros(n), rtol=0, atol=1e-9)
    gram = features @ features.mT
    correlations = torch.linalg.eigvalsh(gram / (m + bias))
    torch.testing.assert_close(torch.linalg.eigvalsh(gram), (m + bias) * correlations, rtol=1e-9, atol=1e-9)


@pytest.mark.claim("Input-side preconditioning", verdict="holds")
@instances
@given(st.integers(1, 4), st.integers(1, 3), st.sampled_from(ACTIVATIONS), st.sampled_from([0.0, 1e-3, 1.0]), seeds)
def test_a_layer_preconditioned_by_its_features_is_within_damping_of_its_diagonal_blocks(
    n, k, activation, damping, seed
):
    """Against the Jacobian, with the preconditioner formed in full."""
    network, x = chain([6, 9, 9, k], activation, seed=seed % 2**31), gaussian(seed % 2**31 + 3, n, 6)
    layers, rows = layers_of(network, x), jacobian(network, x)
    parts = rows.split([module.weight.numel() for module in network if isinstance(module, nn.Linear)], 1)
    for (features, reach), part in zip(layers, parts, strict=True):
        s = torch.linalg.svdvals(features)
        if len(s) < n or s[-1] < 1e-3 * s[0]:
            continue
        second = features.mT @ features + damping * torch.eye(features.shape[1], dtype=features.dtype)
        inverse = torch.linalg.pinv(second, rtol=1e-9, hermitian=True)
        units = part.view(n * k, -1, features.shape[1])
        found = torch.einsum("aui,ij,buj->ab", units, inverse, units)
        blocks = torch.block_diag(*(reach @ reach.mT))
        least, most = (v**2 / (v**2 + damping) for v in (s[-1], s[0]))
        slack = 1e-7 * blocks.abs().max().item() + 1e-300
        assert torch.linalg.eigvalsh(found - least * blocks)[0] >= -slack
        assert torch.linalg.eigvalsh(most * blocks - found)[0] >= -slack

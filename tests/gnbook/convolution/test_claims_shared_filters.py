"""Convolutional layers whose filters are shared: the matrix, bounds, many filters and one."""

import itertools

import numpy as np
import pytest
import torch
from gnbook.convolution.bounds import convolution_bound, sharp_convolution
from gnbook.convolution.gauss_newton import convolution_gauss_newton, path_moment
from gnbook.convolution.networks import convolution_weights
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.gnbook.convolution.helpers import condition, networks, outputs, shared_jacobian, some_filters, true_values
from tests.oracles import ends, identity, spectrum
from tests.strategies import EPS, a_hundred, exact, gaussian, kron, orthogonal, seeds, up_to_rounding


def sees_something(filters, x, strides, paddings):
    return outputs([torch.ones_like(w) for w in filters], x.abs(), strides, paddings).any()


@pytest.mark.claim("Shared filters", verdict="holds")
@given(networks())
def test_virtual_patches_have_the_spectrum_of_all_samples_and_positions(problem):
    assume(sees_something(*problem))
    reduced = spectrum(convolution_gauss_newton(*problem))
    expected = torch.linalg.svdvals(shared_jacobian(*problem)) ** 2 / len(problem[1])
    size = max(len(reduced), len(expected))
    reduced, expected = (torch.nn.functional.pad(v, (0, size - len(v))) for v in (reduced, expected))
    assert (reduced - expected).abs().max() <= 1e-10 * (expected[0] + 1e-30)


def unfolded(filters):
    """Return A_l and B_l, from their definition: a row or column for each choice of taps."""
    flat = [w.flatten(2) for w in filters]
    pairs = []
    for layer in range(len(flat)):
        above, below = identity(flat[-1].shape[0]), identity(flat[0].shape[1])
        for w in reversed(flat[layer + 1 :]):
            above = torch.stack([above @ w[:, :, tap] for tap in range(w.shape[2])], 1).flatten(0, 1)
        for w in flat[:layer]:
            below = torch.stack([w[:, :, tap] @ below for tap in range(w.shape[2])], 1).flatten(1)
        pairs.append((above, flat[layer].shape[2], below))
    return pairs


def path_features(filters, x, strides, paddings):
    """Return what each path carries to each output position: taps of the last layer outermost, channels innermost."""
    features = []
    for taps in itertools.product(*(range(w[0, 0].numel()) for w in reversed(filters))):
        for channel in range(x.shape[1]):
            single = [torch.zeros(1, 1, *w.shape[2:]).double() for w in filters]
            for w, tap in zip(single, reversed(taps), strict=True):
                w.view(-1)[tap] = 1
            features.append(outputs(single, x[:, channel : channel + 1], strides, paddings).flatten())
    return torch.stack(features, 1)


@pytest.mark.claim("Shared filters, sum over paths", verdict="holds")
@a_hundred
@given(networks((1, 3), (1, 2), channels=3))
def test_the_matrix_is_a_kronecker_sum_over_paths_whose_second_moment_is_that_of_the_library(problem):
    filters, x, _, _ = problem
    c, features = len(filters[-1]), path_features(*problem)
    moment = torch.linalg.svdvals(features) ** 2 / len(x)
    if features.any():
        values = spectrum(path_moment(*problem))[: len(moment)]
        assert (values - moment[: len(values)]).abs().max() <= 1e-10 * moment[0]
    assume(c * features.shape[1] <= 400)
    total = sum(kron(a @ a.mT, kron(identity(k), b.mT @ b)) for a, k, b in unfolded(filters))
    root = kron(identity(c), features)
    values, true = spectrum(root @ total @ root.mT / len(x)), torch.linalg.svdvals(shared_jacobian(*problem)) ** 2
    size = min(len(values), len(true))
    assert (values[:size] - true[:size] / len(x)).abs().max() <= 1e-10 * (true[0] / len(x) + 1e-30)


@pytest.mark.claim("Lemma 2 for shared filters", verdict="holds")
@a_hundred
@given(seeds, st.integers(1, 3), st.integers(1, 3), st.integers(0, 2))
def test_the_library_evaluates_the_bound_as_printed(seed, k, c, padding):
    filters = [gaussian(seed, 10, c, k), gaussian(seed + 1, 2, 10, 2)]
    problem = filters, gaussian(seed + 2, 30, c, 5), (1, 2), (0, padding)
    s = torch.linalg.svdvals(path_features(*problem)) ** 2
    top = bottom = 0
    for a, _, b in unfolded(filters):
        (low, high), (least, most) = ends(a @ a.mT), ends(b.mT @ b)
        top, bottom = top + high * most, bottom + max(low, 0) * max(least, 0)
    printed = (s[0] / s[s > 1e-13 * s[0]][-1]).item() * top / bottom
    assert convolution_bound(*problem) == pytest.approx(printed, rel=1e-6)


@pytest.mark.claim("Lemma 2 for shared filters", "Sharper bound for shared filters", verdict="holds")
@given(networks(hidden=st.sampled_from([1, 2, 4, 9, 12])))
def test_the_sharper_bound_lies_between_the_condition_number_and_the_other_and_is_exact_for_one_layer(problem):
    filters, x, strides, paddings = problem
    for some in (problem, (filters[:1], x, strides[:1], paddings[:1])):
        kappa = condition(*some)
        if kappa is None or kappa >= 1e10 or not sees_something(*some):
            continue
        bound, sharp = convolution_bound(*some), sharp_convolution(*some)
        assert kappa <= bound * up_to_rounding(kappa)
        assert kappa <= sharp * up_to_rounding(kappa)
        assert sharp <= bound * up_to_rounding(min(sharp, 1e12)) or sharp > 1e10  # where rounding decides what is zero
        assert len(some[0]) > 1 or sharp == pytest.approx(kappa, rel=1e-6 + 1e4 * EPS * kappa**0.5)


@pytest.mark.claim("Many filters", verdict="holds")
@settings(max_examples=20)
@given(seeds, st.integers(1, 3), st.integers(1, 3), st.integers(0, 1))
def test_two_layers_of_many_filters_are_near_the_limit(seed, a, b, padding):
    generator, x = torch.Generator().manual_seed(seed), gaussian(seed, 40, 1, 6)
    problem = convolution_weights([1, 5000, 2], [a, b], generator=generator), x, 1, (0, padding)
    values = spectrum(convolution_gauss_newton(*problem)), spectrum(path_moment(*problem))
    kappa, limit = ((v[0] / v[v > 1e-10 * v[0]][-1]).item() for v in values)
    assert kappa == pytest.approx(limit, rel=0.15)
    assert kappa * (1 - 1e-9) <= convolution_bound(*problem) <= 1.2 * limit


@pytest.mark.claim("Two taps or more", verdict="holds")
@given(st.data(), st.integers(1, 4), st.integers(1, 4), st.integers(0, 3), seeds)
def test_with_one_tap_it_is_one_and_with_more_at_least_two(data, k, m, more, seed):
    filters = [data.draw(some_filters(m, 1, k)), data.draw(some_filters(1, m, k))]
    d = 2 * k - 1 + more
    x = d**0.5 * orthogonal(seed, d)[:, None]
    assume(len(true_values(filters, x)) == 2 * k - 1)
    kappa = condition(filters, x)
    assert kappa == pytest.approx(1) if k == 1 else kappa >= 2 * (1 - 1e-9)
    two = [exact([[[1, 0]], [[0, 1]]]), exact([[[1, 0], [0, 1]]])]  # filters of two taps that attain two
    assert condition(two, 3**0.5 * identity(3)[:, None]) == pytest.approx(2, rel=1e-12)


ROOTS = (0, 1, -1, 2, None)  # None is the root at infinity


@pytest.mark.claim("One filter", verdict="holds")
@given(*2 * [st.lists(st.sampled_from(ROOTS), max_size=3)], seeds)
def test_the_rank_with_one_filter_counts_the_common_roots(first, second, seed):
    finite = [[root for root in some if root is not None] for some in (first, second)]
    infinite = [[0.0] * some.count(None) for some in (first, second)]  # coefficients of the highest powers
    filters = [
        exact([[[*zeros, *np.atleast_1d(np.poly(roots))]]]) for zeros, roots in zip(infinite, finite, strict=True)
    ]
    window = len(first) + len(second) + 1
    x = gaussian(seed, 3 * window, 1, window + 2)
    common = sum(min(first.count(root), second.count(root)) for root in ROOTS)
    assert len(true_values(filters, x)) == window - common

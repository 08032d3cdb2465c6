"""Convolutional layers whose filters are shared: the matrix, bounds, many filters and one."""

import itertools

import pytest
import torch
from gnbook.convolution.bounds import convolution_bound, sharp_convolution
from gnbook.convolution.gauss_newton import convolution_gauss_newton, path_moment
from gnbook.convolution.networks import convolution_weights
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.gnbook.convolution.helpers import condition, networks, outputs, shared_jacobian, some_filters, true_values
from tests.strategies import EPS, a_hundred, exact, gaussian, instances, kron, orthogonal, seeds, up_to_rounding

tens = settings(instances, max_examples=20)


@pytest.mark.claim("Shared filters", verdict="holds")
@instances
@given(networks())
def test_virtual_patches_have_the_spectrum_of_all_samples_and_positions(problem):
    filters, x, strides, paddings = problem
    j = shared_jacobian(filters, x, strides, paddings)
    blind = [torch.ones_like(w) for w in filters]
    assume(outputs(blind, x.abs(), strides, paddings).any())
    reduced = torch.linalg.eigvalsh(convolution_gauss_newton(filters, x, strides, paddings)).flip(0)
    expected = torch.linalg.svdvals(j) ** 2 / len(x)
    scale = expected[0] + 1e-30
    size = min(len(reduced), len(expected))
    assert (reduced[:size] - expected[:size]).abs().max() <= 1e-10 * scale
    assert max([v.abs().max() for v in (reduced[size:], expected[size:]) if len(v)], default=0) <= 1e-10 * scale


def unfolded(filters):
    """Return A_l and B_l, from their definition: a row or column for each choice of taps."""
    flat = [w.flatten(2) for w in filters]
    pairs = []
    for layer in range(len(flat)):
        above, below = torch.eye(flat[-1].shape[0]).double(), torch.eye(flat[0].shape[1]).double()
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
def test_the_matrix_is_a_kronecker_sum_over_paths(problem):
    filters, x, strides, paddings = problem
    c, paths = len(filters[-1]), x.shape[1] * torch.tensor([w[0, 0].numel() for w in filters]).prod().item()
    assume(c * paths <= 400)
    features = path_features(filters, x, strides, paddings)
    total = sum(kron(a @ a.mT, kron(torch.eye(k).double(), b.mT @ b)) for a, k, b in unfolded(filters))
    root = kron(torch.eye(c).double(), features)
    values = torch.linalg.eigvalsh(root @ total @ root.mT / len(x)).flip(0)
    true = torch.linalg.svdvals(shared_jacobian(filters, x, strides, paddings)) ** 2 / len(x)
    size = min(len(values), len(true))
    assert (values[:size] - true[:size]).abs().max() <= 1e-10 * (true[0] + 1e-30)


def true_bound(filters, x, strides, paddings):
    """Return the bound from its definition, with all paths."""
    s = torch.linalg.svdvals(path_features(filters, x, strides, paddings)) ** 2
    s = s[s > 1e-13 * s[0]]
    ends = [
        [(lambda v: (v[-1], v[0].clamp_min(0)))(torch.linalg.eigvalsh(m)) for m in (a @ a.mT, b.mT @ b)]
        for a, _, b in unfolded(filters)
    ]
    top, bottom = (sum(above[i] * below[i] for above, below in ends) for i in (0, 1))
    return (s[0] / s[-1] * top / bottom).item()


wide = st.sampled_from([1, 2, 4, 9, 12])


def finite_cases(problem):
    filters, x, strides, paddings = problem
    values = true_values(filters, x, strides, paddings)
    assume(len(values) and outputs([torch.ones_like(w) for w in filters], x.abs(), strides, paddings).any())
    kappa = (values[0] / values[-1]).item()
    assume(kappa < 1e10)
    return kappa, convolution_bound(*problem), sharp_convolution(*problem)


@pytest.mark.claim("Lemma 2 for shared filters", verdict="holds")
@a_hundred
@given(seeds, st.integers(1, 3), st.integers(1, 3), st.integers(0, 2))
def test_the_library_evaluates_the_bound_as_printed(seed, k, c, padding):
    filters = [gaussian(seed, 10, c, k), gaussian(seed + 1, 2, 10, 2)]
    problem = filters, gaussian(seed + 2, 30, c, 5), (1, 2), (0, padding)
    assert convolution_bound(*problem) == pytest.approx(true_bound(*problem), rel=1e-6)


@pytest.mark.claim("Lemma 2 for shared filters", verdict="holds")
@pytest.mark.claim("Sharper bound for shared filters", verdict="holds")
@instances
@given(networks(hidden=wide))
def test_the_sharper_bound_lies_between_the_condition_number_and_the_other(problem):
    kappa, bound, sharp = finite_cases(problem)
    assert kappa <= bound * up_to_rounding(kappa)
    assert kappa <= sharp * up_to_rounding(kappa)
    assert sharp <= bound * up_to_rounding(min(sharp, 1e12)) or sharp > 1e10  # where rounding decides what is zero


@pytest.mark.claim("Sharper bound for shared filters", verdict="holds")
@a_hundred
@given(networks((1, 1)))
def test_the_sharper_bound_is_exact_for_one_layer(problem):
    kappa, _, sharp = finite_cases(problem)
    assert sharp == pytest.approx(kappa, rel=1e-6 + 1e4 * EPS * kappa**0.5)


@pytest.mark.claim("Many filters", verdict="holds")
@tens
@given(seeds, st.integers(1, 3), st.integers(1, 3), st.integers(0, 1))
def test_two_layers_of_many_filters_are_near_the_limit(seed, a, b, padding):
    generator, x = torch.Generator().manual_seed(seed), gaussian(seed, 40, 1, 6)
    problem = convolution_weights([1, 5000, 2], [a, b], generator=generator), x, 1, (0, padding)
    values, limit = (
        torch.linalg.eigvalsh(convolution_gauss_newton(*problem)),
        torch.linalg.eigvalsh(path_moment(*problem)),
    )
    kappa, limit = (v[-1] / v[v > 1e-10 * v[-1]][0] for v in (values, limit))
    assert kappa.item() == pytest.approx(limit.item(), rel=0.15)
    assert kappa * (1 - 1e-9) <= convolution_bound(*problem) <= 1.2 * limit


@pytest.mark.claim("Two taps or more", verdict="holds")
@instances
@given(st.data(), st.integers(1, 4), st.integers(1, 4), st.integers(0, 3), seeds)
def test_with_one_tap_it_is_one_and_with_more_at_least_two(data, k, m, more, seed):
    filters = [data.draw(some_filters(m, 1, k)), data.draw(some_filters(1, m, k))]
    d = 2 * k - 1 + more
    x = d**0.5 * orthogonal(seed, d)[:, None]
    assume(len(true_values(filters, x)) == 2 * k - 1)
    kappa = condition(filters, x)
    assert kappa == pytest.approx(1) if k == 1 else kappa >= 2 * (1 - 1e-9)


@pytest.mark.claim("Two taps or more", verdict="holds")
def test_two_filters_of_two_taps_attain_two():
    filters = [exact([[[1, 0]], [[0, 1]]]), exact([[[1, 0], [0, 1]]])]
    assert condition(filters, 3**0.5 * torch.eye(3).double()[:, None]) == pytest.approx(2, rel=1e-12)


ROOTS = (0, 1, -1, 2, None)  # None is the root at infinity


def polynomial(roots):
    """Return coefficients whose roots these are."""
    total = torch.ones(1).double()
    for root in roots:
        factor = exact([0, 1]) if root is None else exact([1, -root])
        padded = torch.zeros(len(total) + 1).double()
        padded[:-1] += factor[0] * total
        padded[1:] += factor[1] * total
        total = padded
    return total


@pytest.mark.claim("One filter", verdict="holds")
@instances
@given(*2 * [st.lists(st.sampled_from(ROOTS), max_size=3)], seeds)
def test_the_rank_with_one_filter_counts_the_common_roots(first, second, seed):
    filters = [polynomial(first)[None, None], polynomial(second)[None, None]]
    window = len(first) + len(second) + 1
    x = gaussian(seed, 3 * window, 1, window + 2)
    common = sum(min(first.count(root), second.count(root)) for root in ROOTS)
    assert len(true_values(filters, x)) == window - common


@pytest.mark.claim("Shared filters, sum over paths", verdict="holds")
@a_hundred
@given(networks((1, 3), (1, 2), channels=2))
def test_the_second_moment_of_the_paths_is_that_of_the_library(problem):
    filters, x, strides, paddings = problem
    features = path_features(filters, x, strides, paddings)
    assume(features.any())
    values = torch.linalg.eigvalsh(path_moment(filters, x, strides, paddings)).flip(0)
    expected = torch.linalg.svdvals(features) ** 2 / len(x)
    size = min(len(values), len(expected))
    assert (values[:size] - expected[:size]).abs().max() <= 1e-10 * expected[0]

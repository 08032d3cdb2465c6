"""Residual linear networks: the Gauss-Newton matrix, and bounds on what a skip does to singular values."""

import math

import numpy as np
import pytest
import torch
from gnbook.shared.skips import kaiming_skip_limits, residual_bound, skip_bounds

from gnlib import linear_gauss_newton, linear_network, linear_weights, second_moment, whiten
from gnlib.linear.bounds import zhao_lemma_2
from tests.oracles import autograd_jacobian, network, normal, orthogonal

SHAPES = [(1, 1), (2, 2), (5, 5), (7, 3), (3, 7), (4, 1), (1, 4)]
WIDTHS = [(3, 4), (4, 6, 3), (3, 5, 5), (1, 1, 1), (4, 7, 7, 2), (2, 4, 4, 4, 3), (5, 2, 4), (3, 1, 3), (6, 4, 2)]
SKIPS = [-1.0, 0.0, 0.25, 1.0, 3.0]


@pytest.mark.parametrize("widths", WIDTHS, ids=lambda widths: "-".join(map(str, widths)))
@pytest.mark.parametrize("skip", SKIPS)
def test_the_gauss_newton_matrix_is_that_of_automatic_differentiation(widths, skip):
    weights, x = network(widths, seed=1), normal(9, widths[0], seed=2)
    jacobian = autograd_jacobian(weights, x, skip)
    expected = torch.linalg.svdvals(jacobian) ** 2 / len(x)
    computed = torch.linalg.eigvalsh(linear_gauss_newton(weights, second_moment(x), skip).dense()).flip(0)
    size = max(len(expected), len(computed))
    both = torch.zeros(2, size, dtype=torch.float64)
    both[0, : len(expected)], both[1, : len(computed)] = expected, computed
    assert (both[0] - both[1]).abs().max() <= 1e-10 * expected[0]


def with_skip(weight, skip):
    return weight + skip * torch.eye(*weight.shape, dtype=weight.dtype)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("skip", [-2.0, -0.3, 0.0, 0.3, 1.0, 2.0, 50.0])
def test_all_singular_values_are_within_the_bounds(shape, skip):
    for seed in range(5):
        weight = normal(*shape, seed=seed)
        lower, upper = skip_bounds(weight, skip)
        singular = torch.linalg.svdvals(with_skip(weight, skip))
        assert lower <= singular[-1] * (1 + 1e-12) and singular[0] <= upper * (1 + 1e-12)
        assert lower >= 0


def smallest_by_search(smallest, least, largest, skip):
    """The least value of max(s^2, t^2) + 2 b t + b^2 over the range of t, by trying a great many of them."""
    t = np.concatenate([np.linspace(least, largest, 100_001), [p for p in (-skip, -smallest) if least <= p <= largest]])
    return math.sqrt((np.maximum(smallest**2, t**2) + 2 * skip * t + skip**2).min())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("skip", [0.0, 0.1, 0.5, 1.0, 2.0, 10.0])
def test_the_bounds_are_those_of_the_proof(shape, skip):
    for seed, shift in enumerate((-3, -1, 0, 1)):
        weight = with_skip(normal(*shape, seed=seed), shift)
        tall = weight.numpy() if shape[0] >= shape[1] else weight.numpy().T
        singular = np.linalg.svd(tall, compute_uv=False)
        block = tall[: tall.shape[1]]
        symmetric = np.linalg.eigvalsh((block + block.T) / 2)
        bounds = skip_bounds(weight, skip)
        lower = smallest_by_search(singular[-1], symmetric[0], symmetric[-1], skip)
        assert bounds.lower == pytest.approx(lower, rel=1e-6, abs=1e-6)
        assert bounds.upper == pytest.approx(math.sqrt(singular[0] ** 2 + 2 * skip * symmetric[-1] + skip**2), rel=1e-9)


def test_a_negative_skip_is_a_positive_one_of_the_opposite_layer():
    weight = normal(5, 4, seed=3)
    assert skip_bounds(weight, -0.7) == skip_bounds(-weight, 0.7)


@pytest.mark.parametrize("shape", [(4, 4), (7, 4), (4, 7)])
@pytest.mark.parametrize("skip", [-0.5, 0.5, 2.0])
def test_a_rectangular_identity_has_no_slack(shape, skip):
    lower, upper = skip_bounds(3 * torch.eye(*shape), skip)
    assert lower == pytest.approx(3 + skip) and upper == pytest.approx(3 + skip)


@pytest.mark.parametrize("shape", [(5, 5), (8, 5)])
@pytest.mark.parametrize("skip", [-1.0, 0.4, 3.0])
def test_on_a_subspace_only_its_inputs_count(shape, skip):
    weight, q = normal(*shape, seed=4), orthogonal(shape[1], 2, seed=5)
    singular = torch.linalg.svdvals(with_skip(weight, skip) @ q)
    lower, upper = skip_bounds(weight, skip, q)
    assert lower <= singular[-1] and singular[0] <= upper
    whole = skip_bounds(weight, skip)
    assert whole.lower <= lower and upper <= whole.upper
    turned = orthogonal(2, 2, seed=6)
    assert skip_bounds(weight, skip, q @ turned) == pytest.approx((lower, upper))
    assert skip_bounds(weight, skip, torch.eye(shape[1])) == pytest.approx(whole)


def chain(weights, frame, skip):
    """Squared bounds on the products of layers, each on what the layers before it reach; zero below after narrowing."""
    pairs = [(1.0, 1.0)]
    for w in weights:
        wide = w.shape[0] < w.shape[1]
        lower, upper = skip_bounds(w, skip) if wide else skip_bounds(w, skip, frame)
        pairs.append((0.0 if wide else pairs[-1][0] * lower**2, pairs[-1][1] * upper**2))
        u, s, _ = torch.linalg.svd(with_skip(w, skip) @ frame, full_matrices=False)
        frame = u[:, s > 1e-12 * s[0]]
    return pairs


@pytest.mark.parametrize("widths", WIDTHS, ids=lambda widths: "-".join(map(str, widths)))
@pytest.mark.parametrize("skip", [0.0, 1.0, 4.0])
def test_the_bound_for_networks_is_the_ratio_of_sums_of_products(widths, skip):
    weights, x = network(widths, seed=7), normal(12, widths[0], seed=8)
    moment = second_moment(x)
    below = chain(weights[:-1], torch.eye(widths[0], dtype=torch.float64), skip)
    above = chain([w.mT for w in weights[:0:-1]], torch.eye(widths[-1], dtype=torch.float64), skip)[::-1]
    bottom, top = (sum(b[end] * a[end] for b, a in zip(below, above, strict=True)) for end in (0, 1))
    expected = np.linalg.cond(moment.numpy()) * top / bottom if bottom else math.inf
    assert residual_bound(weights, moment, skip) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("rank", [2, 5])
def test_the_bound_for_networks_is_evaluated_on_the_range_of_the_data(rank):
    moment = second_moment(whiten(normal(9, rank, seed=1) @ orthogonal(5, rank, seed=2).mT))
    weights = linear_weights([5, 8, 8, 2], generator=torch.Generator().manual_seed(3))
    bound, everywhere = residual_bound(weights, moment, 3.0), residual_bound(weights, torch.eye(5), 3.0)
    assert zhao_lemma_2(weights, moment, 3.0).first <= bound <= everywhere * (1 + 1e-9)
    assert (bound < 0.99 * everywhere) == (rank < 5)


def test_the_bound_for_networks_tends_to_the_condition_number_of_the_data():
    moment = torch.diag(torch.tensor([6.0, 2.0, 1.0]))
    weights = linear_weights([3, 5, 5, 2], generator=torch.Generator().manual_seed(4))
    assert residual_bound(weights, moment, 1e6) == pytest.approx(6, rel=1e-4)


def test_without_hidden_layers_the_data_are_all_there_is():
    moment = torch.diag(torch.tensor([6.0, 2.0]))
    assert residual_bound([normal(3, 2, seed=1)], moment, 1.0) == pytest.approx(3)


def test_a_network_that_may_be_singular_has_no_finite_bound():
    weights = [-torch.eye(2), torch.ones(2, 2), -torch.eye(2)]
    assert residual_bound(weights, torch.eye(2), 1.0) == math.inf


@pytest.mark.parametrize("skip", [0.0, 0.6, -1.0, 1.3, 2.0, 8.0])
def test_wide_kaiming_layers_approach_the_limits(skip):
    (weight,) = linear_weights([1000, 1000], generator=torch.Generator().manual_seed(0))
    singular = torch.linalg.svdvals(with_skip(weight, skip))
    lower, upper = kaiming_skip_limits(skip)
    assert upper == pytest.approx(singular[0].item(), rel=0.01)
    assert lower == pytest.approx(singular[-1].item(), abs=0.03)


def test_the_limits_are_known_without_a_skip_at_one_and_far_beyond():
    assert kaiming_skip_limits(0.0) == (0, pytest.approx(2))
    assert kaiming_skip_limits(1.0) == (0, pytest.approx(6.75**0.5))
    lower, upper = kaiming_skip_limits(1e4)
    assert kaiming_skip_limits(-2.0) == kaiming_skip_limits(2.0)
    assert (lower - 1e4, upper - 1e4) == (pytest.approx(-(2**0.5), abs=1e-3), pytest.approx(2**0.5, abs=1e-3))


def test_whitened_data_have_no_factor():
    weights, x = network((3, 5, 5, 2), seed=2), normal(12, 3, seed=3)
    assert residual_bound(weights, second_moment(whiten(x)), 4.0) == pytest.approx(
        residual_bound(weights, torch.eye(3), 4.0), rel=1e-9
    )


@pytest.mark.bad_input
@pytest.mark.parametrize("skip", [math.nan, math.inf, -math.inf])
def test_a_skip_is_finite(skip):
    weights, moment = network((2, 2, 2), seed=1), torch.eye(2)
    for refused in (
        lambda: linear_network(weights, torch.ones(3, 2), skip),
        lambda: linear_gauss_newton(weights, moment, skip),
        lambda: zhao_lemma_2(weights, moment, skip),
        lambda: skip_bounds(weights[0], skip),
        lambda: residual_bound(weights, moment, skip),
        lambda: kaiming_skip_limits(skip),
    ):
        with pytest.raises(ValueError, match=f"skip is {skip}; a finite number was expected"):
            refused()


@pytest.mark.bad_input
@pytest.mark.parametrize("weight", [torch.ones(3), torch.ones(2, 2, 2)])
def test_a_layer_is_a_matrix(weight):
    with pytest.raises(ValueError, match=r"weights\[0\] has shape .* a matrix of shape \(out, in\) was expected"):
        skip_bounds(weight, 1.0)


@pytest.mark.bad_input
def test_a_subspace_has_orthonormal_columns_among_the_inputs_of_a_layer_that_keeps_them():
    weight = normal(4, 3, seed=1)
    with pytest.raises(ValueError, match=r"subspace has shape \(4, 2\); orthonormal columns of length 3"):
        skip_bounds(weight, 1.0, orthogonal(4, 2, seed=2))
    for length in (2, 1 + 1e-6):
        with pytest.raises(ValueError, match=r"not orthonormal \(off by .*torch.linalg.qr"):
            skip_bounds(weight, 1.0, length * orthogonal(3, 2, seed=2))
    with pytest.raises(ValueError, match=r"3 outputs for 4 inputs.*at least as many outputs as inputs"):
        skip_bounds(weight.mT, 1.0, orthogonal(4, 2, seed=2))


@pytest.mark.bad_input
def test_data_and_network_are_of_one_size():
    with pytest.raises(ValueError, match=r"second_moment is of size 3 but weights\[0\] takes 2 inputs"):
        residual_bound(network((2, 4, 1), seed=1), torch.eye(3), 1.0)

"""The whole Hessian of one hidden layer, both halves together, and the functional Hessian of deeper networks."""

import math
from itertools import combinations

import pytest
import torch
from gnbook.functional_hessian.bounds import functional_hessian_norm, hessian_condition
from gnbook.functional_hessian.hessian import functional_hessian, linear_hessian, residual_moment
from hypothesis import assume, given
from hypothesis import strategies as st

from gnlib import second_moment
from tests.gnbook.functional_hessian.helpers import condition, dims, hidden_layers, loss_hessian, outer_half, size
from tests.oracles import norm
from tests.strategies import EPS, a_hundred, exact, gaussian, instances, matrices, networks, problems, seeds


@pytest.mark.claim("A bound for the whole Hessian", verdict="fails")
def test_both_halves_can_be_perfect_and_the_hessian_as_bad_as_one_likes():
    x = torch.ones(1, 1).double()
    for residual in (1e-1, 1e-4, 1e-8):
        v = w = torch.ones(1, 1).double()
        omega = torch.full((1, 1), residual).double()
        whole, second = linear_hessian([v, w], second_moment(x), omega), functional_hessian([v, w], omega)
        assert torch.allclose(whole, exact([[1, 1 + residual], [1 + residual, 1]]), rtol=1e-14)
        values = torch.linalg.eigvalsh(whole).abs().sort().values
        assert condition(whole - second) == condition(second) == pytest.approx(1)
        assert (values[1] / values[0]).item() == pytest.approx((2 + residual) / residual, rel=1e-6)


@pytest.mark.claim("Functional Hessian and loss", verdict="holds")
@instances
@given(problems(2, 2), seeds)
def test_the_loss_above_its_minimum_bounds_the_norm_from_both_sides(problem, seed):
    weights, x = problem
    s = torch.linalg.svdvals(x)
    assume(s[0] > 0)
    s = s[s > 1e-9 * s[0]] ** 2 / len(x)
    y = gaussian(seed, len(x), len(weights[-1]))
    z = torch.linalg.lstsq(x, y, driver="gelsd").solution.mT
    outputs, best = x @ torch.linalg.multi_dot(weights[::-1]).mT, x @ z.mT
    excess = ((outputs - y).square().sum() - (best - y).square().sum()).item() / (2 * len(x))
    squared = norm(residual_moment(weights, x, y)) ** 2
    rounding = 1e-10 * s[0] * ((outputs - y).square().sum() + y.square().sum()).item() / len(x)
    assert squared <= 2 * s[0] * excess + rounding
    assert squared >= 2 * s[-1] * excess / min(len(weights[-1]), len(s)) - rounding


@pytest.mark.claim("Negative curvature", verdict="holds")
@instances
@given(hidden_layers())
def test_a_redundant_unit_makes_the_hessian_indefinite_while_there_is_a_residual(layer):
    (v, w), x, y = layer
    omega, m = residual_moment([v, w], x, y), len(v)
    ranks = [torch.linalg.matrix_rank(a, rtol=1e-10) if a.any() else 0 for a in (v, w)]
    assume(min(ranks) < m and norm(omega) > 1e-6 * size([v, w], x, y))
    values = torch.linalg.eigvalsh(loss_hessian([v, w], x, y))
    moment, reach = second_moment(x), max(norm(v), norm(w))
    sharpest = norm(moment) * reach**2
    # along t -> t^2 |.|^2 + 2 t sigma, over the squared length 1 + t^2 of the direction
    t = -norm(omega) / (sharpest + norm(omega))
    assert values[0] <= (t**2 * sharpest + 2 * t * norm(omega)) / (1 + t**2) + 1e-9 * size([v, w], x, y)
    assert t**2 * sharpest + 2 * t * norm(omega) < 0


@pytest.mark.claim("Weyl for the whole Hessian", verdict="holds")
@instances
@given(hidden_layers())
def test_the_hessian_has_the_large_eigenvalues_of_the_gauss_newton_matrix_and_small_ones(layer):
    weights, x, y = layer
    omega = residual_moment(weights, x, y)
    outer = torch.linalg.eigvalsh(outer_half(weights, x)).flip(0)
    whole = torch.linalg.eigvalsh(loss_hessian(weights, x, y)).flip(0)
    q, scale = int((outer > 1e-10 * outer[0]).sum()), size(weights, x, y)
    assert q < len(outer) and outer[-1] <= 1e-10 * scale  # there is a hidden layer: G is singular
    allowed = norm(omega) + 1e-10 * scale
    assert (whole - outer).abs().max() <= allowed and whole[q:].abs().max() <= allowed
    if q and outer[q - 1] > 1e-6 * scale and whole[q - 1] > 1e-6 * scale:
        interval = hessian_condition(outer[0].item(), outer[q - 1].item(), norm(omega))
        assert interval.lower * (1 - 1e-3) <= whole[0] / whole[q - 1] <= interval.upper * (1 + 1e-3)


@pytest.mark.claim("Rank of the whole Hessian", verdict="holds")
@instances
@given(dims, dims, dims, st.integers(1, 5), st.integers(0, 4), seeds)
def test_the_rank_of_the_hessian_for_general_weights(k, d, r, m, rank, seed):
    r = min(r, d)
    rank = min(rank, k, r)
    v, w = gaussian(seed, m, d), gaussian(seed + 1, k, m)
    sigma = second_moment(gaussian(seed + 2, 3 * d, r) @ gaussian(seed + 3, r, d)) if r < d else torch.eye(d).double()
    omega = gaussian(seed + 4, k, rank) @ gaussian(seed + 5, rank, d) @ sigma if rank else torch.zeros(k, d).double()
    values = torch.linalg.eigvalsh(linear_hessian([v, w], sigma, omega)).abs()
    found = int((values > 1e-11 * values.max()).sum())
    nullity = (m - min(m, k)) * (r - rank) + (m - min(m, r)) * (k - rank) + m * (d - r)
    assert found <= len(values) - nullity
    if rank == min(k, r) and values[values > 1e-11 * values.max()].min() > 1e-9 * values.max():
        assert found == len(values) - nullity


@pytest.mark.claim("Condition number in the limit", verdict="holds")
@a_hundred
@given(dims, dims, st.integers(1, 5), seeds)
def test_the_condition_number_of_the_hessian_grows_without_bound_as_the_residual_dies(k, d, m, seed):
    v, w, sigma = gaussian(seed, m, d), gaussian(seed + 1, k, m), torch.eye(d).double()
    direction = gaussian(seed + 2, k, d)
    values = torch.linalg.eigvalsh(linear_hessian([v, w], sigma, 0 * direction))
    largest, q = values[-1].item(), int((values > 1e-10 * values[-1]).sum())
    for size_ in (1e-2, 1e-4):
        omega = size_ * largest * direction / norm(direction)
        spectrum = torch.linalg.eigvalsh(linear_hessian([v, w], sigma, omega)).abs().sort(descending=True).values
        kept = spectrum[spectrum > 1e3 * EPS * spectrum[0]]
        assert len(kept) > q
        assert kept[0] / kept[-1] >= (largest - norm(omega)) / norm(omega) * (1 - 1e-9)


@pytest.mark.claim("Functional Hessian of deep linear networks", verdict="holds")
@a_hundred
@given(problems(2, 4), seeds)
def test_the_blocks_of_a_deep_network(problem, seed):
    weights, x = problem
    y = gaussian(seed, len(x), len(weights[-1]))
    second = loss_hessian(weights, x, y) - outer_half(weights, x)
    closed = functional_hessian(weights, residual_moment(weights, x, y))
    assert (second - closed).abs().max() <= 1e-11 * size(weights, x, y)
    assert closed.trace() == 0


@pytest.mark.claim("Norm of the functional Hessian", verdict="holds")
@instances
@given(st.data(), networks(2, 5))
def test_the_norm_of_the_functional_hessian(data, weights):
    omega = data.draw(matrices(len(weights[-1]), weights[0].shape[1]))
    value, bound = norm(functional_hessian(weights, omega)), functional_hessian_norm(weights, omega)
    scale = norm(omega) * max(1.0, *(norm(w) for w in weights)) ** (len(weights) - 2)
    assert value <= bound * (1 + 1e-9) + 1e-12 * scale
    norms = exact([norm(w) for w in weights])
    rest = [norms[[i for i in range(len(norms)) if i not in pair]] for pair in combinations(range(len(norms)), 2)]
    product = max(some.prod().item() for some in rest)
    assert bound <= (len(weights) - 1) * norm(omega) * product * (1 + 1e-9) + 1e-12 * scale
    if len(weights) == 2:
        assert math.isclose(value, norm(omega), rel_tol=1e-9, abs_tol=1e-12)
        assert math.isclose(bound, norm(omega), rel_tol=1e-9, abs_tol=1e-12)

"""Zhao 2024, appendix F: the functional Hessian of one hidden layer, teacher and student; and the whole Hessian."""

import math
from itertools import combinations

import pytest
import torch
from gnbook.functional_hessian import hessian
from gnbook.functional_hessian.bounds import functional_hessian_norm, hessian_condition, zhao_eq_18
from gnbook.functional_hessian.hessian import functional_hessian, linear_hessian, residual_moment
from hypothesis import assume, given
from hypothesis import strategies as st

from gnlib import SecondMoment, second_moment
from tests import strategies
from tests.oracles import norm
from tests.strategies import a_hundred, exact, gaussian, kron, matrices, orthogonal, problems, samples, seeds

dims = st.integers(1, 4)


def eq_17(omega, m):
    """The matrix of Eq. 17 as it is printed."""
    k, d = omega.shape
    whole, block = torch.zeros(m * (k + d), m * (k + d)).double(), kron(omega, torch.eye(m).double())
    whole[: k * m, k * m :], whole[k * m :, : k * m] = block, block.mT
    return whole


def loss_hessian(weights, x, y):
    """The Hessian of `sum |f - y|^2 / (2 n)` by automatic differentiation, layer by layer, row by row."""
    sizes = [w.numel() for w in weights]

    def loss(theta):
        outputs = x
        for part, w in zip(theta.split(sizes), weights, strict=True):
            outputs = outputs @ part.reshape(w.shape).mT
        return (outputs - y).square().sum() / (2 * len(x))

    return torch.autograd.functional.hessian(loss, torch.cat([w.flatten() for w in weights]))


def outer_half(weights, x):
    j = strategies.jacobian(weights, x)
    return j.mT @ j / len(x)


def second_half(weights, x, y):
    return loss_hessian(weights, x, y) - outer_half(weights, x)


def condition(matrix, threshold=1e-10):
    """The pseudo-condition number."""
    s = torch.linalg.svdvals(matrix)
    return (s[0] / s[s > threshold * s[0]][-1]).item()


@st.composite
def hidden_layers(draw):
    """Draw `[v, w]`, samples and targets, which a teacher gave or which are free; sometimes there is no residual."""
    (v, w), x = draw(problems(2, 2))
    kind, y = draw(st.sampled_from(["free", "teacher", "none"])), gaussian(draw(seeds), len(x), len(w))
    if kind != "free":
        y = x @ (w @ v + (draw(matrices(len(w), v.shape[1])) if kind == "teacher" else 0)).mT
    return [v, w], x, y


def size(weights, x, y):
    """A scale for the rounding of a Hessian."""
    greatest = max(1.0, *(norm(w) for w in weights))
    return greatest ** (2 * len(weights)) * (norm(x) ** 2 + norm(x) * norm(y)) / len(x) + 1e-300


@pytest.mark.claim("Eq. 17", verdict="holds if")
@given(hidden_layers())
def test_eq_17_is_the_second_half_if_one_weight_is_read_by_rows_and_one_by_columns(layer):
    weights, x, y = layer
    v, w = weights
    omega = (x @ v.mT @ w.mT - y).mT @ x / len(x)
    columns_of_v = torch.arange(v.numel()).reshape(v.shape).mT.flatten()
    order = torch.cat([v.numel() + torch.arange(w.numel()), columns_of_v])  # W first
    second = second_half(weights, x, y)[order][:, order]
    assert (second - eq_17(omega, len(v))).abs().max() <= 1e-11 * size(weights, x, y)


@pytest.mark.claim("Appendix F, product with a Kronecker vector", verdict="holds")
@given(st.data(), dims, dims, dims, seeds)
def test_the_product_with_a_kronecker_vector(data, k, d, m, seed):
    omega = data.draw(matrices(k, d))
    a, b, c, e = (gaussian(seed + i, n) for i, n in enumerate([k, m, d, m]))
    product = eq_17(omega, m) @ torch.cat([torch.kron(a, b), torch.kron(c, e)])
    expected = torch.cat([torch.kron(omega @ c, e), torch.kron(omega.mT @ a, b)])
    assert (product - expected).abs().max() <= 1e-12 * (1 + norm(omega)) * (a.norm() + c.norm()) * (b.norm() + e.norm())


@pytest.mark.claim("Appendix F, eigenvectors", verdict="holds if")
@given(st.data(), dims, dims, dims, seeds)
def test_paired_singular_vectors_give_eigenvectors_with_any_orthonormal_vectors(data, k, d, m, seed):
    omega, b, r = data.draw(matrices(k, d)), orthogonal(seed, m), min(k, d)
    u, s, vt = torch.linalg.svd(omega)
    upper, lower = kron(u, b), kron(vt.mT, b)
    pairs = [torch.cat([upper[:, : r * m], sign * lower[:, : r * m]]) / 2**0.5 for sign in (1, -1)]
    rest = torch.block_diag(upper[:, r * m :], lower[:, r * m :])  # of the larger side
    found, values = torch.cat([*pairs, rest], 1), s.repeat_interleave(m)
    values = torch.cat([values, -values, torch.zeros(rest.shape[1]).double()])
    assert found.shape == (m * (k + d), m * (k + d))
    assert (found.mT @ found - torch.eye(len(found)).double()).abs().max() <= 1e-12
    assert (eq_17(omega, m) @ found - found * values).abs().max() <= 1e-12 * (1 + norm(omega))
    no_pair, square = exact([1, 0, 0, 1]), eq_17(torch.eye(2).double(), 1)  # eigenvectors of the products of omega = I
    assert torch.linalg.matrix_rank(torch.stack([square @ no_pair, no_pair])) == 2


@pytest.mark.claim("Appendix F, eigenvalues", verdict="holds if")
@pytest.mark.claim("Spectrum of the functional Hessian", verdict="holds")
@given(hidden_layers())
def test_the_spectrum_is_that_of_singular_values_with_both_signs_and_zeros(layer):
    weights, x, y = layer
    second, omega, m = second_half(weights, x, y), residual_moment(weights, x, y), len(weights[0])
    values, rounding = hessian.functional_hessian_eigenvalues(omega, m), 1e-11 * size(weights, x, y)
    assert len(values) == len(second)
    assert (torch.linalg.eigvalsh(second).flip(0) - values).abs().max() <= rounding
    k, d = omega.shape
    roots = strategies.squares(omega.mT, d).sqrt()  # of omega^T omega
    signed = torch.cat([roots, -roots]).repeat(m).sort(descending=True).values
    assert (len(signed) == len(values)) is (k == d)  # but the values that are not zero are the same
    ends = m * min(k, d)
    for some in (slice(ends), slice(-ends, None)):
        assert torch.allclose(signed[some], values[some], rtol=1e-9, atol=rounding)


@st.composite
def regular_moments(draw, d):
    values = draw(st.lists(st.sampled_from([0.01, 0.1, 1.0, 2.0, 5.0]), min_size=d, max_size=d))
    q = orthogonal(draw(seeds), d)
    sigma = q * exact(values) @ q.mT
    return (sigma + sigma.mT) / 2


@pytest.mark.claim("Appendix F, teacher-student", "Any targets", verdict="holds")
@given(problems(2, 4), seeds, st.booleans())
def test_the_residual_moment_is_error_times_second_moment_and_any_targets_have_a_teacher(problem, seed, taught):
    weights, x = problem
    assume(x.any())
    product = torch.linalg.multi_dot(weights[::-1])
    z, y = gaussian(seed, *product.shape), gaussian(seed, len(x), len(product))
    if taught:
        y = x @ z.mT
    else:
        z = torch.linalg.lstsq(x, y, driver="gelsd").solution.mT
    scale = norm(x) * (norm(x) * (norm(product) + norm(z)) + norm(y))
    omega = residual_moment(weights, x, y)
    tolerance = 1e-12 if taught else 1e-11
    assert (omega - (product - z) @ second_moment(x)).abs().max() <= tolerance * scale


@pytest.mark.claim("Appendix F, condition number by the inverse", verdict="holds if")
@pytest.mark.claim("Appendix F, norm of the inverse", verdict="fails")
@given(st.data(), dims, dims)
def test_the_inverse_gives_condition_number_and_smallest_singular_value_of_a_square_residual_moment(data, k, m):
    omega = data.draw(matrices(k, k, regular=True))
    assume(condition(omega, 1e-12) < 1e6)
    functional = eq_17(omega, m)
    inverse = norm(torch.linalg.inv(functional))
    assert math.isclose(norm(functional) * inverse, condition(functional), rel_tol=1e-8)
    assert math.isclose(inverse * torch.linalg.svdvals(omega)[-1].item(), 1, rel_tol=1e-8)  # not the norm itself


@pytest.mark.claim("Appendix F, largest singular value", verdict="holds")
@given(st.data(), dims, dims, dims)
def test_the_norm_is_at_most_that_of_the_error_times_that_of_the_data(data, k, d, m):
    error, sigma = data.draw(matrices(k, d)), second_moment(data.draw(samples(d)))
    value = norm(eq_17(error @ sigma, m))
    assert math.isclose(value, norm(error @ sigma), rel_tol=1e-9, abs_tol=1e-12 * norm(error) * norm(sigma))
    assert value <= norm(error) * norm(sigma) * (1 + 1e-9)
    assert math.isclose(norm(eq_17(error, m)), norm(error), rel_tol=1e-9, abs_tol=1e-12)  # attained: white data


@pytest.mark.claim("Appendix F, smallest singular value", verdict="holds if")
@given(st.data(), dims, dims, dims)
def test_the_smallest_singular_value_is_that_of_the_residual_moment_if_it_is_square_or_zeros_are_left_out(
    data, k, d, m
):
    omega = data.draw(matrices(k, d))
    assume(omega.any())
    s, values = torch.linalg.svdvals(omega), torch.linalg.svdvals(eq_17(omega, m))
    assert math.isclose(values[values > 1e-10 * s[0]][-1], s[s > 1e-10 * s[0]][-1], rel_tol=1e-9)
    assert abs(values[-1] - (s[-1] if k == d else 0)) <= 1e-12 * s[0]


@pytest.mark.claim("Appendix F, bound on the smallest singular value", verdict="holds if")
@given(st.data(), dims, dims)
def test_a_regular_second_moment_shrinks_no_singular_value_by_more_than_its_smallest_eigenvalue(data, k, d):
    error, sigma = data.draw(matrices(k, d)), data.draw(regular_moments(d))
    least, rounding = torch.linalg.eigvalsh(sigma)[0], 1e-12 * norm(error) * norm(sigma)
    assert (torch.linalg.svdvals(error @ sigma) >= torch.linalg.svdvals(error) * least - rounding).all()
    error, sigma = exact([[3, 4]]) / 5, exact([1, 0]).diag()  # a singular one: smallest non-zero values of both are 1
    assert torch.linalg.svdvals(error @ sigma)[0] == 0.6 < 1


@pytest.mark.claim("Eq. 18", "Appendix F, dependence on the data", verdict="holds if")
@given(st.data(), dims, dims, dims)
def test_eq_18_holds_for_a_regular_second_moment_and_as_many_outputs_as_inputs_hand_its_condition_on(data, k, d, m):
    error, sigma = data.draw(matrices(k, d)), data.draw(regular_moments(d))
    assume(error.any())
    bound = condition(error, 1e-12) * condition(sigma, 1e-12)
    assert condition(eq_17(error @ sigma, m)) <= bound * (1 + 1e-8)
    assert math.isclose(zhao_eq_18(error, sigma), bound, rel_tol=1e-8)
    error = data.draw(matrices(d, d, regular=True))
    assert condition(eq_17(error @ sigma, m)) >= condition(sigma, 1e-12) / condition(error, 1e-12) * (1 - 1e-7)


@pytest.mark.claim("Eq. 18", "Appendix F, dependence on the data", verdict="holds if")
def test_eq_18_fails_for_a_singular_second_moment_and_an_error_can_cancel_the_data():
    error, sigma = exact([[1, 0, 0], [0, 1 / 4, 1]]), exact([1, 1, 0]).diag()
    assert condition(eq_17(error @ sigma, 1)) == pytest.approx(4)
    assert condition(error) * condition(sigma) < 1.1 and zhao_eq_18(error, sigma) == pytest.approx(4)
    # smaller shapes leave no room: a second moment of rank one, or one output, makes the left side one
    assert condition(eq_17(exact([[1, 2], [3, 4]]) @ exact([1, 0]).diag(), 1)) == pytest.approx(1)
    assert condition(eq_17(exact([[1, 2, 3]]) @ sigma, 1)) == pytest.approx(1)
    error, sigma = exact([1, 4]).diag(), exact([4, 1]).diag()
    assert condition(eq_17(error @ sigma, 1)) == 1  # Eq. 18 allows 16
    assert condition(eq_17(error, 1)) == 4  # whitening makes it worse


@pytest.mark.claim("Eq. 18, repaired", verdict="holds")
@given(st.data(), dims, dims, dims)
def test_eq_18_on_the_range_of_the_data(data, k, d, m):
    error, sigma = data.draw(matrices(k, d)), second_moment(data.draw(samples(d)))
    assume(norm(error @ sigma) > 1e-9 * norm(sigma) * norm(error) and condition(sigma) < 1e6)
    assert condition(eq_17(error @ sigma, m)) <= zhao_eq_18(error, sigma) * (1 + 1e-6)


# ---- The whole Hessian, and deeper networks --------------------------------------------------------------------------


@pytest.mark.claim("A bound for the whole Hessian", verdict="fails")
@pytest.mark.parametrize("residual", [1e-1, 1e-4, 1e-8])
def test_both_halves_can_be_perfect_and_the_hessian_as_bad_as_one_likes(residual):
    one = torch.ones(1, 1).double()
    whole, second = linear_hessian([one, one], one, residual * one), functional_hessian([one, one], residual * one)
    assert torch.allclose(whole, exact([[1, 1 + residual], [1 + residual, 1]]), rtol=1e-14)
    assert condition(whole - second) == condition(second) == pytest.approx(1)
    assert condition(whole) == pytest.approx((2 + residual) / residual, rel=1e-6)


@pytest.mark.claim("Functional Hessian and loss", verdict="holds")
@given(problems(2, 2), seeds)
def test_the_loss_above_its_minimum_bounds_the_norm_from_both_sides(problem, seed):
    weights, x = problem
    s = torch.linalg.svdvals(x)
    assume(s[0] > 0)
    s, y = s[s > 1e-9 * s[0]] ** 2 / len(x), gaussian(seed, len(x), len(weights[-1]))
    z = torch.linalg.lstsq(x, y, driver="gelsd").solution.mT
    outputs, best = x @ torch.linalg.multi_dot(weights[::-1]).mT, x @ z.mT
    excess = ((outputs - y).square().sum() - (best - y).square().sum()).item() / (2 * len(x))
    squared = norm(residual_moment(weights, x, y)) ** 2
    rounding = 1e-10 * s[0] * ((outputs - y).square().sum() + y.square().sum()).item() / len(x)
    assert squared <= 2 * s[0] * excess + rounding
    assert squared >= 2 * s[-1] * excess / min(len(weights[-1]), len(s)) - rounding


@pytest.mark.claim("Negative curvature", verdict="holds")
@given(hidden_layers())
def test_a_redundant_unit_makes_the_hessian_indefinite_while_there_is_a_residual(layer):
    weights, x, y = layer
    residual, rounding = norm(residual_moment(weights, x, y)), size(weights, x, y)
    ranks = [torch.linalg.matrix_rank(a, rtol=1e-10) if a.any() else 0 for a in weights]
    assume(min(ranks) < len(weights[0]) and residual > 1e-6 * rounding)
    sharpest = norm(second_moment(x)) * max(map(norm, weights)) ** 2
    # along t -> t^2 |.|^2 + 2 t sigma, over the squared length 1 + t^2 of the direction
    t = -residual / (sharpest + residual)
    curvature = t**2 * sharpest + 2 * t * residual
    assert torch.linalg.eigvalsh(loss_hessian(weights, x, y))[0] <= curvature / (1 + t**2) + 1e-9 * rounding
    assert curvature < 0


@pytest.mark.claim("Weyl for the whole Hessian", verdict="holds")
@given(hidden_layers())
def test_the_hessian_has_the_large_eigenvalues_of_the_gauss_newton_matrix_and_small_ones(layer):
    weights, x, y = layer
    residual, scale = norm(residual_moment(weights, x, y)), size(weights, x, y)
    outer = torch.linalg.eigvalsh(outer_half(weights, x)).flip(0)
    whole = torch.linalg.eigvalsh(loss_hessian(weights, x, y)).flip(0)
    q, allowed = int((outer > 1e-10 * outer[0]).sum()), residual + 1e-10 * scale
    assert q < len(outer) and outer[-1] <= 1e-10 * scale  # there is a hidden layer: G is singular
    assert (whole - outer).abs().max() <= allowed and whole[q:].abs().max() <= allowed
    if q and outer[q - 1] > 1e-6 * scale and whole[q - 1] > 1e-6 * scale:
        interval = hessian_condition(outer[0].item(), outer[q - 1].item(), residual)
        assert interval.lower * (1 - 1e-3) <= whole[0] / whole[q - 1] <= interval.upper * (1 + 1e-3)
    assert hessian_condition(12.0, 2.0, 1.0) == pytest.approx((11 / 3, 13))
    assert hessian_condition(4.0, 2.0, 3.0) == (1, math.inf)  # a ratio of ordered eigenvalues is never below one


@pytest.mark.claim("Rank of the whole Hessian", verdict="holds")
@given(dims, dims, dims, st.integers(1, 5), st.integers(0, 4), seeds)
def test_the_rank_of_the_hessian_for_general_weights(k, d, r, m, rank, seed):
    r = min(r, d)
    rank = min(rank, k, r)
    v, w = gaussian(seed, m, d), gaussian(seed + 1, k, m)
    sigma = second_moment(gaussian(seed + 2, 3 * d, r) @ gaussian(seed + 3, r, d)) if r < d else torch.eye(d).double()
    omega = gaussian(seed + 4, k, rank) @ gaussian(seed + 5, rank, d) @ sigma
    values = torch.linalg.eigvalsh(linear_hessian([v, w], sigma, omega)).abs()
    kept = values[values > 1e-11 * values.max()]
    nullity = (m - min(m, k)) * (r - rank) + (m - min(m, r)) * (k - rank) + m * (d - r)
    assert len(kept) <= len(values) - nullity
    if rank == min(k, r) and kept.min() > 1e-9 * values.max():
        assert len(kept) == len(values) - nullity


@pytest.mark.claim("Condition number in the limit", verdict="holds")
@a_hundred
@given(dims, dims, st.integers(1, 5), seeds, st.sampled_from([1e-2, 1e-4]))
def test_the_condition_number_of_the_hessian_grows_without_bound_as_the_residual_dies(k, d, m, seed, share):
    v, w, sigma = gaussian(seed, m, d), gaussian(seed + 1, k, m), torch.eye(d).double()
    direction = gaussian(seed + 2, k, d)
    values = torch.linalg.eigvalsh(linear_hessian([v, w], sigma, 0 * direction))
    largest, q = values[-1].item(), int((values > 1e-10 * values[-1]).sum())
    omega = share * largest * direction / norm(direction)
    spectrum = torch.linalg.svdvals(linear_hessian([v, w], sigma, omega))
    kept = spectrum[spectrum > 1e3 * strategies.EPS * spectrum[0]]
    assert len(kept) > q
    assert kept[0] / kept[-1] >= (largest - norm(omega)) / norm(omega) * (1 - 1e-9)


@pytest.mark.claim("Functional Hessian of deep linear networks", verdict="holds")
@a_hundred
@given(problems(1, 5), seeds)
def test_the_hessian_of_a_deep_network_its_second_half_and_its_products(problem, seed):
    weights, x = problem
    y, direction = gaussian(seed, len(x), len(weights[-1])), [gaussian(seed + 1, *w.shape) for w in weights]
    whole, omega, rounding = loss_hessian(weights, x, y), residual_moment(weights, x, y), 1e-11 * size(weights, x, y)
    closed = functional_hessian(weights, omega)
    assert (whole - outer_half(weights, x) - closed).abs().max() <= rounding and closed.trace() == 0
    expected = whole @ torch.cat([w.flatten() for w in direction])
    for moment in (second_moment(x), SecondMoment.from_data(x)):  # by matrix and by factors
        assert (linear_hessian(weights, moment, omega) - whole).abs().max() <= rounding
        along = hessian.linear_hessian_product(weights, moment, omega, direction)
        assert [part.shape for part in along] == [w.shape for w in weights]
        assert (torch.cat([part.flatten() for part in along]) - expected).abs().max() <= len(whole) * rounding


@pytest.mark.claim("Norm of the functional Hessian", verdict="holds")
@given(st.data(), strategies.networks(2, 5))
def test_the_norm_of_the_functional_hessian(data, weights):
    omega = data.draw(matrices(len(weights[-1]), weights[0].shape[1]))
    value, bound = norm(functional_hessian(weights, omega)), functional_hessian_norm(weights, omega)
    norms, depth = [norm(w) for w in weights], len(weights)
    rounding = 1e-12 * norm(omega) * max(1.0, *norms) ** (depth - 2)
    assert value <= bound * (1 + 1e-9) + rounding
    product = max(math.prod(rest) for rest in combinations(norms, depth - 2))
    assert bound <= (depth - 1) * norm(omega) * product * (1 + 1e-9) + rounding
    if depth == 2:
        assert (value, bound) == pytest.approx((norm(omega), norm(omega)), rel=1e-9, abs=1e-12)
    ones = [torch.ones(1, 1)] * 3  # H_F has zeros on the diagonal and ones off it
    assert functional_hessian_norm(ones, torch.tensor([[-2.0]])) == pytest.approx(4)

"""Zhao 2024, appendix F: the functional Hessian of one hidden layer, and the whole Hessian."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from gnlib import second_moment
from gnlib.chapters.functional_hessian.bounds import functional_hessian_norm, hessian_condition, zhao_eq_18
from gnlib.chapters.functional_hessian.hessian import (
    functional_hessian,
    functional_hessian_eigenvalues,
    linear_hessian,
    residual_moment,
)
from tests.strategies import (
    EPS,
    a_hundred,
    exact,
    gaussian,
    hundreds,
    jacobian,
    kron,
    matrices,
    networks,
    orthogonal,
    problems,
    samples,
    seeds,
    squares,
)

dims = st.integers(1, 4)


def norm(matrix):
    return torch.linalg.matrix_norm(matrix, 2).item()


def eq_17(omega, m):
    """The matrix of Eq. 17 as it is printed."""
    k, d = omega.shape
    block = kron(omega, torch.eye(m).double())
    upper = torch.cat([torch.zeros(k * m, k * m).double(), block], 1)
    lower = torch.cat([block.mT, torch.zeros(d * m, d * m).double()], 1)
    return torch.cat([upper, lower])


def loss_hessian(weights, x, y, scale=0.5):
    """The Hessian of `scale / n sum |f - y|^2` by automatic differentiation, layer by layer, row by row."""
    sizes = [w.numel() for w in weights]

    def loss(theta):
        outputs = x
        for part, w in zip(theta.split(sizes), weights, strict=True):
            outputs = outputs @ part.reshape(w.shape).mT
        return scale * (outputs - y).square().sum() / len(x)

    return torch.autograd.functional.hessian(loss, torch.cat([w.flatten() for w in weights]))


def reordered(matrix, v, w, transpose_w, transpose_v=True):
    """Reorder parameters: W first, then V, each by rows, or by columns if transposed."""
    numbers_v = torch.arange(v.numel()).reshape(v.shape)
    numbers_w = v.numel() + torch.arange(w.numel()).reshape(w.shape)
    order = torch.cat([(n.mT if t else n).flatten() for n, t in ((numbers_w, transpose_w), (numbers_v, transpose_v))])
    return matrix[order][:, order]


def outer_half(weights, x):
    j = jacobian(weights, x)
    return j.mT @ j / len(x)


def condition(matrix):
    """The pseudo-condition number of a symmetric matrix, by absolute values; None for zero."""
    values = torch.linalg.eigvalsh(matrix).abs().sort(descending=True).values
    kept = values[values > 1e-10 * values[0]]
    return (kept[0] / kept[-1]).item() if len(kept) else None


def matrix_condition(matrix):
    s = torch.linalg.svdvals(matrix)
    return (s[0] / s[s > 1e-12 * s[0]][-1]).item()


@st.composite
def hidden_layers(draw, residual=None):
    """Draw `[v, w]`, samples and targets, which a teacher gave or which are free; sometimes there is no residual."""
    weights, x = draw(problems(2, 2))
    v, w = weights
    kind = residual or draw(st.sampled_from(["free", "teacher", "none"]))
    y = gaussian(draw(seeds), len(x), len(w))
    if kind != "free":
        z = w @ v + (draw(matrices(len(w), v.shape[1])) if kind == "teacher" else 0)
        y = x @ z.mT
    return weights, x, y


def size(weights, x, y):
    """A scale for what rounding may do to a Hessian."""
    greatest = max(1.0, *(norm(w) for w in weights))
    return greatest ** (2 * len(weights)) * (norm(x) ** 2 + norm(x) * norm(y)) / len(x) + 1e-300


@st.composite
def regular_moments(draw, d):
    values = draw(st.lists(st.sampled_from([0.01, 0.1, 1.0, 2.0, 5.0]), min_size=d, max_size=d))
    q = orthogonal(draw(seeds), d)
    sigma = q * exact(values) @ q.mT
    return (sigma + sigma.mT) / 2


@pytest.mark.claim("Eq. 17", verdict="holds if")
@hundreds
@given(hidden_layers())
def test_eq_17_is_the_second_half_if_one_weight_is_read_by_rows_and_one_by_columns(layer):
    weights, x, y = layer
    v, w = weights
    omega = (x @ v.mT @ w.mT - y).mT @ x / len(x)
    second = reordered(loss_hessian(weights, x, y) - outer_half(weights, x), v, w, transpose_w=False)
    assert (second - eq_17(omega, len(v))).abs().max() <= 1e-11 * size(weights, x, y)


@pytest.mark.claim("Eq. 17", verdict="holds if")
def test_eq_17_is_another_matrix_for_other_orders_and_other_factors_of_the_loss():
    v = w = torch.eye(2).double()
    omega, x = exact([[1, 2], [3, 4]]), 2**0.5 * torch.eye(2).double()  # white
    y = x @ (w @ v - omega).mT
    for w_by_columns, v_by_columns, factor, equal in [
        (False, True, 1, True),
        (True, True, 1, False),  # as the paper orders its Jacobian
        (False, False, 1, False),
        (False, True, 2, False),  # no half in the loss
    ]:
        second = loss_hessian([v, w], x, y, factor / 2) - factor * outer_half([v, w], x)
        second = reordered(second, v, w, w_by_columns, v_by_columns)
        assert torch.allclose(second, eq_17(omega, 2), atol=1e-12) is equal
        assert torch.allclose(torch.linalg.eigvalsh(second), factor * torch.linalg.eigvalsh(eq_17(omega, 2)))


@pytest.mark.claim("Appendix F, product with a Kronecker vector", verdict="holds")
@hundreds
@given(st.data(), dims, dims, dims, seeds)
def test_the_product_with_a_kronecker_vector(data, k, d, m, seed):
    omega = data.draw(matrices(k, d))
    a, b, c, e = (gaussian(seed + i, n) for i, n in enumerate([k, m, d, m]))
    product = eq_17(omega, m) @ torch.cat([torch.kron(a, b), torch.kron(c, e)])
    expected = torch.cat([torch.kron(omega @ c, e), torch.kron(omega.mT @ a, b)])
    assert (product - expected).abs().max() <= 1e-12 * (1 + norm(omega)) * (a.norm() + c.norm()) * (b.norm() + e.norm())


@pytest.mark.claim("Appendix F, eigenvectors", verdict="holds if")
@hundreds
@given(st.data(), dims, dims, dims, seeds)
def test_paired_singular_vectors_give_eigenvectors_with_any_orthonormal_vectors(data, k, d, m, seed):
    omega = data.draw(matrices(k, d))
    u, s, vt = torch.linalg.svd(omega)
    b, functional = orthogonal(seed, m), eq_17(omega, m)
    found, values = [], []
    for i in range(max(k, d)):
        for column in b.mT:
            pairs = [(1, 1), (1, -1)] if i < min(k, d) else [(1, 0)] if k > d else [(0, 1)]
            for first, second in pairs:
                a = first * u[:, i] if first else torch.zeros(k).double()
                c = second * vt[i] if second else torch.zeros(d).double()
                vector = torch.cat([torch.kron(a, column), torch.kron(c, column)])
                found.append(vector / vector.norm())
                values.append(first * second * s[i].item() if first and second else 0.0)
    found, values = torch.stack(found, 1), exact(values)
    assert found.shape == functional.shape
    assert (found.mT @ found - torch.eye(len(found)).double()).abs().max() <= 1e-12
    assert (functional @ found - found * values).abs().max() <= 1e-12 * (1 + norm(omega))


@pytest.mark.claim("Appendix F, eigenvectors", verdict="holds if")
@hundreds
@given(st.data(), dims, dims)
def test_solutions_of_the_two_equations_are_eigenvectors_of_the_two_products(data, k, d):
    omega = data.draw(matrices(k, d))
    values, vectors = torch.linalg.eigh(eq_17(omega, 1))
    for value, vector in zip(values, vectors.mT, strict=True):
        a, c = vector[:k], vector[k:]
        scale = 1e-11 * (1 + norm(omega) ** 2)
        assert (omega @ c - value * a).abs().max() <= scale and (omega.mT @ a - value * c).abs().max() <= scale
        assert (omega.mT @ omega @ c - value**2 * c).abs().max() <= scale
        assert (omega @ omega.mT @ a - value**2 * a).abs().max() <= scale


@pytest.mark.claim("Appendix F, eigenvectors", verdict="holds if")
def test_eigenvectors_of_the_two_products_that_are_not_a_pair_give_none():
    omega, a, c = torch.eye(2).double(), exact([1, 0]), exact([0, 1])
    assert torch.equal(omega @ omega.mT @ a, a) and torch.equal(omega.mT @ omega @ c, c)
    vector = torch.cat([a, c])
    product = eq_17(omega, 1) @ vector
    assert torch.linalg.matrix_rank(torch.stack([product, vector])) == 2


@pytest.mark.claim("Appendix F, eigenvalues", verdict="holds if")
@hundreds
@given(st.data(), dims, dims, st.integers(1, 5))
def test_the_non_zero_eigenvalues_are_singular_values_with_both_signs(data, k, d, m):
    omega = data.draw(matrices(k, d))
    roots = squares(omega.mT, d).sqrt()
    signed = torch.cat([roots, -roots]).repeat(m)
    values = torch.linalg.eigvalsh(eq_17(omega, m))
    cut = 1e-10 * (1e-300 + norm(omega))
    found, expected = (v[v.abs() > cut].sort().values for v in (values, signed))
    assert found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-9)
    assert len(values) == m * (k + d)  # which is not the number of signed roots, 2 m d, unless k = d
    assert (len(signed) == len(values)) is (k == d)


@pytest.mark.claim("Spectrum of the functional Hessian", verdict="holds")
@hundreds
@given(hidden_layers())
def test_the_whole_spectrum_with_its_zeros(layer):
    weights, x, y = layer
    second = loss_hessian(weights, x, y) - outer_half(weights, x)
    values = functional_hessian_eigenvalues(residual_moment(weights, x, y), len(weights[0]))
    assert len(values) == len(second)
    assert (torch.linalg.eigvalsh(second).flip(0) - values).abs().max() <= 1e-11 * size(weights, x, y)


@pytest.mark.claim("Appendix F, teacher-student", verdict="holds")
@hundreds
@given(problems(2, 2), seeds)
def test_with_a_teacher_the_residual_moment_is_error_times_second_moment(problem, seed):
    (v, w), x = problem
    z = gaussian(seed, len(w), v.shape[1])
    omega = residual_moment([v, w], x, x @ z.mT)
    assert (omega - (w @ v - z) @ second_moment(x)).abs().max() <= 1e-12 * (norm(w) * norm(v) + norm(z)) * norm(x) ** 2


@pytest.mark.claim("Any targets", verdict="holds")
@hundreds
@given(problems(2, 4), seeds)
def test_any_targets_have_a_teacher(problem, seed):
    weights, x = problem
    assume(x.any())
    product = torch.linalg.multi_dot(weights[::-1])
    y = gaussian(seed, len(x), len(product))
    z = torch.linalg.lstsq(x, y, driver="gelsd").solution.mT
    omega = residual_moment(weights, x, y)
    scale = norm(x) * (norm(x) * (norm(product) + norm(z)) + norm(y))
    assert (omega - (product - z) @ second_moment(x)).abs().max() <= 1e-11 * scale


@pytest.mark.claim("Appendix F, condition number by the inverse", verdict="holds if")
@hundreds
@given(st.data(), st.integers(1, 4), dims, seeds)
def test_the_inverse_gives_the_condition_number_of_a_square_regular_residual_moment(data, k, m, seed):
    omega = data.draw(matrices(k, k, regular=True))
    assume(matrix_condition(omega) < 1e6)
    functional = eq_17(omega, m)
    inverse = torch.linalg.inv(functional)
    assert math.isclose(norm(functional) * norm(inverse), condition(functional), rel_tol=1e-8)


@pytest.mark.claim("Appendix F, condition number by the inverse", verdict="holds if")
@hundreds
@given(st.data(), dims, dims, dims)
def test_without_as_many_outputs_as_inputs_there_is_no_inverse(data, k, d, m):
    assume(k != d)
    functional = eq_17(data.draw(matrices(k, d)), m)
    rank = torch.linalg.matrix_rank(functional, rtol=1e-12) if functional.any() else 0
    assert len(functional) - rank >= m * abs(k - d)


@pytest.mark.claim("Appendix F, largest singular value", verdict="holds")
@hundreds
@given(st.data(), dims, dims, dims)
def test_the_norm_is_at_most_that_of_the_error_times_that_of_the_data(data, k, d, m):
    error, sigma = data.draw(matrices(k, d)), second_moment(data.draw(samples(d)))
    value = norm(eq_17(error @ sigma, m))
    assert math.isclose(value, norm(error @ sigma), rel_tol=1e-9, abs_tol=1e-12 * norm(error) * norm(sigma))
    assert value <= norm(error) * norm(sigma) * (1 + 1e-9)
    assert math.isclose(norm(eq_17(error, m)), norm(error) * 1, rel_tol=1e-9, abs_tol=1e-12)  # attained: white data


@pytest.mark.claim("Appendix F, norm of the inverse", verdict="fails")
def test_the_norm_of_the_inverse_is_not_the_smallest_singular_value():
    functional = eq_17(exact([[2]]), 1)
    assert norm(torch.linalg.inv(functional)) == 0.5
    assert torch.linalg.svdvals(functional)[-1] == 2


@pytest.mark.claim("Appendix F, norm of the inverse", verdict="fails")
@hundreds
@given(st.data(), dims, dims)
def test_the_norm_of_the_inverse_is_one_over_the_smallest_singular_value(data, k, m):
    omega = data.draw(matrices(k, k, regular=True))
    assume(matrix_condition(omega) < 1e6)
    least = torch.linalg.svdvals(omega)[-1].item()
    assert math.isclose(norm(torch.linalg.inv(eq_17(omega, m))) * least, 1, rel_tol=1e-8)


@pytest.mark.claim("Appendix F, smallest singular value", verdict="holds if")
@hundreds
@given(st.data(), dims, dims, dims)
def test_the_smallest_singular_value_is_that_of_the_residual_moment_if_it_is_square_or_zeros_are_left_out(
    data, k, d, m
):
    omega = data.draw(matrices(k, d))
    assume(omega.any())
    s, values = torch.linalg.svdvals(omega), torch.linalg.svdvals(eq_17(omega, m))
    cut = 1e-10 * s[0]
    assert math.isclose(values[values > cut][-1], s[s > cut][-1], rel_tol=1e-9)
    if k == d:
        assert abs(values[-1] - s[-1]) <= 1e-12 * s[0]
    else:
        assert values[-1] <= 1e-12 * s[0]


@pytest.mark.claim("Appendix F, smallest singular value", verdict="holds if")
def test_more_inputs_than_outputs_make_the_smallest_singular_value_zero():
    omega = exact([[1, 0]])
    assert torch.linalg.svdvals(omega)[-1] == 1 and torch.linalg.svdvals(eq_17(omega, 1))[-1] == 0


@pytest.mark.claim("Appendix F, bound on the smallest singular value", verdict="holds if")
@hundreds
@given(st.data(), dims, dims)
def test_a_regular_second_moment_shrinks_no_singular_value_by_more_than_its_smallest_eigenvalue(data, k, d):
    error, sigma = data.draw(matrices(k, d)), data.draw(regular_moments(d))
    least = torch.linalg.eigvalsh(sigma)[0]
    assert (
        torch.linalg.svdvals(error @ sigma) >= torch.linalg.svdvals(error) * least - 1e-12 * norm(error) * norm(sigma)
    ).all()


@pytest.mark.claim("Appendix F, bound on the smallest singular value", verdict="holds if")
def test_with_a_singular_second_moment_the_smallest_non_zero_values_break_the_bound():
    error, sigma = exact([[3, 4]]) / 5, exact([1, 0]).diag()
    assert torch.linalg.svdvals(error @ sigma)[0] == 0.6 < 1  # smallest non-zero values of both factors: 1


@pytest.mark.claim("Eq. 18", verdict="holds if")
@hundreds
@given(st.data(), dims, dims, dims)
def test_eq_18_holds_for_a_regular_second_moment(data, k, d, m):
    error, sigma = data.draw(matrices(k, d)), data.draw(regular_moments(d))
    assume(error.any())
    bound = matrix_condition(error) * matrix_condition(sigma)
    assert condition(eq_17(error @ sigma, m)) <= bound * (1 + 1e-8)
    assert math.isclose(zhao_eq_18(error, sigma), bound, rel_tol=1e-8)


@pytest.mark.claim("Eq. 18", verdict="holds if")
def test_eq_18_fails_for_a_singular_second_moment():
    error, sigma = exact([[1, 0, 0], [0, 1 / 4, 1]]), exact([1, 1, 0]).diag()
    assert condition(eq_17(error @ sigma, 1)) == pytest.approx(4)
    assert matrix_condition(error) * matrix_condition(sigma) < 1.1
    # smaller shapes leave no room: a second moment of rank one, or one output, makes the left side one
    assert condition(eq_17(exact([[1, 2], [3, 4]]) @ exact([1, 0]).diag(), 1)) == pytest.approx(1)
    assert condition(eq_17(exact([[1, 2, 3]]) @ sigma, 1)) == pytest.approx(1)


@pytest.mark.claim("Eq. 18, repaired", verdict="holds")
@hundreds
@given(st.data(), dims, dims, dims)
def test_eq_18_on_the_range_of_the_data(data, k, d, m):
    error, sigma = data.draw(matrices(k, d)), second_moment(data.draw(samples(d)))
    kept = torch.linalg.eigvalsh(sigma)
    kept = kept[kept > 1e-10 * kept[-1]]
    assume(norm(error @ sigma) > 1e-9 * norm(sigma) * norm(error) and kept[-1] / kept[0] < 1e6)
    assert condition(eq_17(error @ sigma, m)) <= zhao_eq_18(error, sigma) * (1 + 1e-6)


@pytest.mark.claim("Appendix F, dependence on the data", verdict="holds if")
@hundreds
@given(st.data(), st.integers(1, 4), dims)
def test_as_many_outputs_as_inputs_hand_the_condition_of_the_data_on(data, d, m):
    error, sigma = data.draw(matrices(d, d, regular=True)), data.draw(regular_moments(d))
    value = condition(eq_17(error @ sigma, m))
    assert value >= matrix_condition(sigma) / matrix_condition(error) * (1 - 1e-7)


@pytest.mark.claim("Appendix F, dependence on the data", verdict="holds if")
@hundreds
@given(st.data(), dims, dims)
def test_with_one_output_the_data_do_not_matter(data, d, m):
    omega = data.draw(matrices(1, d)) @ data.draw(regular_moments(d))
    assume(omega.any())
    assert condition(eq_17(omega, m)) == pytest.approx(1)


@pytest.mark.claim("Appendix F, dependence on the data", verdict="holds if")
def test_an_error_can_cancel_the_data():
    error, sigma = exact([1, 4]).diag(), exact([4, 1]).diag()
    assert condition(eq_17(error @ sigma, 1)) == 1  # Eq. 18 allows 16
    assert condition(eq_17(error, 1)) == 4  # whitening makes it worse


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


@pytest.mark.claim("Functional Hessian of deep linear networks", verdict="holds")
def test_from_three_layers_on_the_spectrum_need_not_be_symmetric():
    ones = torch.ones(1, 1).double()
    for depth in (2, 3, 5):
        values = torch.linalg.eigvalsh(functional_hessian([ones] * depth, ones))
        assert torch.allclose(values, exact([-1] * (depth - 1) + [depth - 1]))


@pytest.mark.claim("Functional Hessian of deep linear networks", verdict="holds")
@hundreds
@given(st.data(), networks(3, 3))
def test_three_layers_without_a_last_one_have_a_symmetric_spectrum(data, weights):
    weights[-1] = torch.zeros_like(weights[-1])
    omega = data.draw(matrices(len(weights[-1]), weights[0].shape[1]))
    values = torch.linalg.eigvalsh(functional_hessian(weights, omega))
    assert (values + values.flip(0)).abs().max() <= 1e-12 * (1e-300 + values[-1])
    ones = torch.ones(1, 1).double()
    values = torch.linalg.eigvalsh(functional_hessian([ones, ones, 0 * ones], ones))
    torch.testing.assert_close(values, exact([-(2**0.5), 0, 2**0.5]), rtol=1e-14, atol=1e-14)


@pytest.mark.claim("Norm of the functional Hessian", verdict="holds")
@hundreds
@given(st.data(), networks(2, 5))
def test_the_norm_of_the_functional_hessian(data, weights):
    omega = data.draw(matrices(len(weights[-1]), weights[0].shape[1]))
    value, bound = norm(functional_hessian(weights, omega)), functional_hessian_norm(weights, omega)
    scale = norm(omega) * max(1.0, *(norm(w) for w in weights)) ** (len(weights) - 2)
    assert value <= bound * (1 + 1e-9) + 1e-12 * scale
    norms = exact([norm(w) for w in weights])
    product = max(
        (
            math.prod(n.item() for i, n in enumerate(norms) if i not in (a, b))
            for a in range(len(norms))
            for b in range(a)
        ),
    )
    assert bound <= (len(weights) - 1) * norm(omega) * product * (1 + 1e-9) + 1e-12 * scale
    if len(weights) == 2:
        assert math.isclose(value, norm(omega), rel_tol=1e-9, abs_tol=1e-12)
        assert math.isclose(bound, norm(omega), rel_tol=1e-9, abs_tol=1e-12)


@pytest.mark.claim("Functional Hessian and loss", verdict="holds")
@hundreds
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
@hundreds
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


@pytest.mark.claim("Negative curvature", verdict="holds")
def test_without_a_redundant_unit_the_hessian_can_be_positive_definite():
    x = torch.ones(1, 1).double()
    values = torch.linalg.eigvalsh(loss_hessian([x, x], x, 2 * x))  # w v = 1 for the target 2: entries 1, 1 - 1
    assert torch.equal(values, exact([1, 1]))


@pytest.mark.claim("Weyl for the whole Hessian", verdict="holds")
@hundreds
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
@hundreds
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

"""Zhao 2024, appendix F: the functional Hessian of one hidden layer, its spectrum, teacher and student."""

import math

import pytest
import torch
from gnbook.functional_hessian.bounds import zhao_eq_18
from gnbook.functional_hessian.hessian import functional_hessian_eigenvalues, residual_moment
from hypothesis import assume, given
from hypothesis import strategies as st

from gnlib import second_moment
from tests.gnbook.functional_hessian.helpers import (
    condition,
    dims,
    eq_17,
    hidden_layers,
    loss_hessian,
    outer_half,
    size,
)
from tests.oracles import norm
from tests.strategies import exact, gaussian, instances, matrices, orthogonal, problems, samples, seeds, squares


def reordered(matrix, v, w, transpose_w, transpose_v=True):
    """Reorder parameters: W first, then V, each by rows, or by columns if transposed."""
    numbers_v = torch.arange(v.numel()).reshape(v.shape)
    numbers_w = v.numel() + torch.arange(w.numel()).reshape(w.shape)
    order = torch.cat([(n.mT if t else n).flatten() for n, t in ((numbers_w, transpose_w), (numbers_v, transpose_v))])
    return matrix[order][:, order]


@pytest.mark.claim("Eq. 17", verdict="holds if")
@instances
@given(hidden_layers())
def test_eq_17_is_the_second_half_if_one_weight_is_read_by_rows_and_one_by_columns(layer):
    weights, x, y = layer
    v, w = weights
    omega = (x @ v.mT @ w.mT - y).mT @ x / len(x)
    second = reordered(loss_hessian(weights, x, y) - outer_half(weights, x), v, w, transpose_w=False)
    assert (second - eq_17(omega, len(v))).abs().max() <= 1e-11 * size(weights, x, y)


@pytest.mark.claim("Appendix F, product with a Kronecker vector", verdict="holds")
@instances
@given(st.data(), dims, dims, dims, seeds)
def test_the_product_with_a_kronecker_vector(data, k, d, m, seed):
    omega = data.draw(matrices(k, d))
    a, b, c, e = (gaussian(seed + i, n) for i, n in enumerate([k, m, d, m]))
    product = eq_17(omega, m) @ torch.cat([torch.kron(a, b), torch.kron(c, e)])
    expected = torch.cat([torch.kron(omega @ c, e), torch.kron(omega.mT @ a, b)])
    assert (product - expected).abs().max() <= 1e-12 * (1 + norm(omega)) * (a.norm() + c.norm()) * (b.norm() + e.norm())


@pytest.mark.claim("Appendix F, eigenvectors", verdict="holds if")
@instances
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
def test_eigenvectors_of_the_two_products_that_are_not_a_pair_give_none():
    omega, a, c = torch.eye(2).double(), exact([1, 0]), exact([0, 1])
    assert torch.equal(omega @ omega.mT @ a, a) and torch.equal(omega.mT @ omega @ c, c)
    vector = torch.cat([a, c])
    product = eq_17(omega, 1) @ vector
    assert torch.linalg.matrix_rank(torch.stack([product, vector])) == 2


@pytest.mark.claim("Appendix F, eigenvalues", verdict="holds if")
@instances
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
@instances
@given(hidden_layers())
def test_the_whole_spectrum_with_its_zeros(layer):
    weights, x, y = layer
    second = loss_hessian(weights, x, y) - outer_half(weights, x)
    values = functional_hessian_eigenvalues(residual_moment(weights, x, y), len(weights[0]))
    assert len(values) == len(second)
    assert (torch.linalg.eigvalsh(second).flip(0) - values).abs().max() <= 1e-11 * size(weights, x, y)


def matrix_condition(matrix):
    s = torch.linalg.svdvals(matrix)
    return (s[0] / s[s > 1e-12 * s[0]][-1]).item()


@st.composite
def regular_moments(draw, d):
    values = draw(st.lists(st.sampled_from([0.01, 0.1, 1.0, 2.0, 5.0]), min_size=d, max_size=d))
    q = orthogonal(draw(seeds), d)
    sigma = q * exact(values) @ q.mT
    return (sigma + sigma.mT) / 2


@pytest.mark.claim("Appendix F, teacher-student", verdict="holds")
@instances
@given(problems(2, 2), seeds)
def test_with_a_teacher_the_residual_moment_is_error_times_second_moment(problem, seed):
    (v, w), x = problem
    z = gaussian(seed, len(w), v.shape[1])
    omega = residual_moment([v, w], x, x @ z.mT)
    assert (omega - (w @ v - z) @ second_moment(x)).abs().max() <= 1e-12 * (norm(w) * norm(v) + norm(z)) * norm(x) ** 2


@pytest.mark.claim("Any targets", verdict="holds")
@instances
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
@pytest.mark.claim("Appendix F, norm of the inverse", verdict="fails")
@instances
@given(st.data(), dims, dims)
def test_the_inverse_gives_condition_number_and_smallest_singular_value_of_a_square_residual_moment(data, k, m):
    omega = data.draw(matrices(k, k, regular=True))
    assume(matrix_condition(omega) < 1e6)
    functional = eq_17(omega, m)
    inverse = norm(torch.linalg.inv(functional))
    assert math.isclose(norm(functional) * inverse, condition(functional), rel_tol=1e-8)
    assert math.isclose(inverse * torch.linalg.svdvals(omega)[-1].item(), 1, rel_tol=1e-8)


@pytest.mark.claim("Appendix F, largest singular value", verdict="holds")
@instances
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


@pytest.mark.claim("Appendix F, smallest singular value", verdict="holds if")
@instances
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


@pytest.mark.claim("Appendix F, bound on the smallest singular value", verdict="holds if")
@instances
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
@instances
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
@instances
@given(st.data(), dims, dims, dims)
def test_eq_18_on_the_range_of_the_data(data, k, d, m):
    error, sigma = data.draw(matrices(k, d)), second_moment(data.draw(samples(d)))
    kept = torch.linalg.eigvalsh(sigma)
    kept = kept[kept > 1e-10 * kept[-1]]
    assume(norm(error @ sigma) > 1e-9 * norm(sigma) * norm(error) and kept[-1] / kept[0] < 1e6)
    assert condition(eq_17(error @ sigma, m)) <= zhao_eq_18(error, sigma) * (1 + 1e-6)


@pytest.mark.claim("Appendix F, dependence on the data", verdict="holds if")
@instances
@given(st.data(), st.integers(1, 4), dims)
def test_as_many_outputs_as_inputs_hand_the_condition_of_the_data_on(data, d, m):
    error, sigma = data.draw(matrices(d, d, regular=True)), data.draw(regular_moments(d))
    value = condition(eq_17(error @ sigma, m))
    assert value >= matrix_condition(sigma) / matrix_condition(error) * (1 - 1e-7)


@pytest.mark.claim("Appendix F, dependence on the data", verdict="holds if")
def test_an_error_can_cancel_the_data():
    error, sigma = exact([1, 4]).diag(), exact([4, 1]).diag()
    assert condition(eq_17(error @ sigma, 1)) == 1  # Eq. 18 allows 16
    assert condition(eq_17(error, 1)) == 4  # whitening makes it worse

"""Zhao 2024, appendix F, Eq. 18: teacher and student."""

import math

import pytest
import torch
from gnbook.functional_hessian.bounds import zhao_eq_18
from gnbook.functional_hessian.hessian import residual_moment
from hypothesis import assume, given
from hypothesis import strategies as st

from gnlib import second_moment
from tests.gnbook.functional_hessian.helpers import condition, dims, eq_17, norm
from tests.strategies import exact, gaussian, instances, matrices, orthogonal, problems, samples, seeds


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

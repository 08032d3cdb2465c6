"""Both ends of a spectrum: agreement with dense matrices, and what a result says of itself."""

import dataclasses

import numpy as np
import pytest
import torch

from gnlib import (
    ConditionNumber,
    NotConvergedError,
    NotResolvedError,
    SecondMoment,
    condition_number,
    linear_gauss_newton,
    second_moment,
    whiten,
)
from gnlib.operators import KroneckerSum
from tests.oracles import (
    autograd_jacobian,
    kronecker_formula,
    network,
    normal,
    samples,
    spectrum,
    with_spectrum,
)


def random_case(seed):
    """A linear network of 1 to 6 layers and its data: every second small, every third white."""
    random = np.random.default_rng(seed)
    small, white, deficient = seed % 2 == 0, seed % 3 == 0, seed % 5 < 2
    d, k = random.integers(1, 7, 2) if small else (random.integers(24, 45), random.integers(10, 18))
    hidden = random.integers(1, 9, seed % 6) if small else random.integers(8, 80, seed % 6)
    n = int(random.integers(1, 2 * d + 1) if small else random.integers(2 * d, 4 * d))
    x = samples(n, int(d), rank=int(min(n, d) + 1) // 2 if deficient else None, seed=seed)
    weights = network([int(d), *map(int, hidden), int(k)], seed=seed)
    return weights, whiten(x) if white else x


def rank_in_theory(weights, x):
    """q (k + r - q), with r the rank of the data and q that of the narrowest layer."""
    k, r = weights[-1].shape[0], int(torch.linalg.matrix_rank(x))
    q = min(r, *(w.shape[0] for w in weights))
    return q * (k + r - q)


def assert_ends(result, values, rank, tolerance=1e-8):
    """Compare with descending eigenvalues of which `rank` are not zero."""
    assert result.rank == rank
    assert result.largest == pytest.approx(values[0].item(), rel=tolerance)
    assert result.smallest == pytest.approx(values[rank - 1].item(), rel=tolerance)
    assert float(result) == pytest.approx((values[0] / values[rank - 1]).item(), rel=2 * tolerance)


@pytest.mark.parametrize("seed", range(60))
def test_both_ends_and_the_rank_of_60_linear_networks_agree_with_dense_eigenvalues(seed):
    weights, x = random_case(seed)
    values, rank = spectrum(kronecker_formula(weights, x)), rank_in_theory(weights, x)
    assert values[rank - 1] > 1e-7 * values[0]  # or else the dense eigenvalues are not right to 1e-8
    assert (values[rank:].abs() < 1e-13 * values[0]).all()
    result = condition_number(linear_gauss_newton(weights, SecondMoment.from_data(x)))
    assert_ends(result, values, rank)
    assert result.residual <= 2e-8
    assert result.resolved


@pytest.mark.parametrize("seed", range(0, 60, 2))
def test_both_ends_and_the_rank_of_30_small_networks_agree_with_autograd(seed):
    weights, x = random_case(seed)
    jacobian = autograd_jacobian(weights, x)
    values = spectrum(jacobian.T @ jacobian / len(x))
    rank = int(torch.linalg.matrix_rank(jacobian))
    assert_ends(condition_number(linear_gauss_newton(weights, second_moment(x))), values, rank)


@pytest.mark.parametrize("skip", [0.3, 1.0])
@pytest.mark.parametrize("widths", [(6, 6, 6), (5, 8, 3, 6), (4, 4, 4, 4, 4)])
def test_both_ends_agree_with_autograd_where_layers_have_skips(widths, skip):
    weights, x = network(widths, seed=1), normal(9, widths[0], seed=2)
    jacobian = autograd_jacobian(weights, x, skip)
    values = spectrum(jacobian @ jacobian.T / len(x))
    result = condition_number(linear_gauss_newton(weights, second_moment(x), skip))
    assert_ends(result, values, int(torch.linalg.matrix_rank(jacobian)))


PRESENT = [[3.0], [2.0, 2.0], [1.0, 1e-3, 1e-6], [5.0] * 4 + [1e-4] * 4, [1e150, 1e148], [1e-150]]


@pytest.mark.parametrize("zeros", [0, 3])
@pytest.mark.parametrize("present", PRESENT, ids=str)
@pytest.mark.parametrize("convert", [torch.as_tensor, torch.Tensor.numpy])
def test_a_matrix_has_the_ends_that_it_was_given(present, zeros, convert):
    matrix = with_spectrum(present + [0.0] * zeros, seed=3)
    for rank in (None, len(present)):
        result = condition_number(convert(matrix), rank=rank)
        assert_ends(result, torch.tensor(present, dtype=torch.float64), len(present))


@pytest.mark.parametrize("size", [2, 50])
@pytest.mark.parametrize("factor, rank", [(0.9, 1), (1.1, 2)])
def test_eigenvalues_up_to_the_size_times_the_rounding_count_as_zero(size, factor, rank):
    diagonal = torch.zeros(size, dtype=torch.float64)
    diagonal[0], diagonal[-1] = 3.0, 3.0 * factor * size * 2.0**-52
    assert condition_number(torch.diag(diagonal)).rank == rank


def test_a_rank_given_overrides_the_threshold():
    matrix = with_spectrum([1.0, 1e-2, 1e-9, 0.0], seed=4)
    assert condition_number(matrix).value == pytest.approx(1e9, rel=1e-5)
    assert condition_number(matrix, rank=2).value == pytest.approx(1e2)


def test_a_rank_given_beyond_the_numerical_one_is_not_resolved():
    matrix = torch.diag(torch.tensor([1.0, 1e-20], dtype=torch.float64))
    assert not condition_number(matrix, rank=2).resolved


def test_the_gap_is_what_separates_the_smallest_eigenvalue_from_those_that_count_as_zero():
    matrix = torch.diag(torch.tensor([1.0, 1e-4, 1e-12], dtype=torch.float64))
    assert condition_number(matrix, rank=2).gap == pytest.approx(1e8)
    assert condition_number(matrix, rank=3).gap == pytest.approx(1e-12 / 2**-52)


def test_rounding_of_an_asymmetric_product_is_forgiven():
    matrix = with_spectrum([2.0, 1.0, 0.5], seed=5)
    matrix[0, 1] += 1e-11
    assert condition_number(matrix).value == pytest.approx(4.0)
    assert condition_number(matrix) == condition_number(matrix.T)


def test_single_precision_is_promoted():
    matrix = with_spectrum([2.0, 1.0, 0.5], seed=6).float()
    assert condition_number(matrix) == condition_number(matrix.double())


@pytest.mark.parametrize("widths", [(4, 3), (4, 5, 3), (4, 5, 6, 3)])
@pytest.mark.parametrize("factor", [1e-60, 1e-3, 1e60])
def test_the_scale_of_the_data_scales_both_ends_and_not_their_ratio(widths, factor):
    weights, x = network(widths, seed=7), normal(9, 4, seed=8)
    one = condition_number(linear_gauss_newton(weights, second_moment(x)))
    other = condition_number(linear_gauss_newton(weights, second_moment(x) * factor))
    assert other.largest == pytest.approx(factor * one.largest, rel=1e-10)
    assert other.smallest == pytest.approx(factor * one.smallest, rel=1e-8)
    assert other.rank == one.rank


def test_the_tolerance_bounds_the_residual():
    op = linear_gauss_newton(network((60, 90, 80, 20), seed=9), torch.eye(60, dtype=torch.float64))
    loose, tight = (condition_number(op, tolerance=t) for t in (1e-2, 1e-10))
    assert loose.residual <= 1e-2
    assert tight.residual <= 1e-10
    assert loose.value == pytest.approx(tight.value, rel=2e-2)


def test_the_operator_keeps_its_factors():
    op = linear_gauss_newton(network((4, 5, 6, 3), seed=11), torch.eye(4, dtype=torch.float64))
    left, right = op.left.clone(), op.right.clone()
    condition_number(op)
    assert torch.equal(op.left, left)
    assert torch.equal(op.right, right)


def test_the_same_operator_gives_the_same_result():
    op = linear_gauss_newton(network((5, 6, 7, 4), seed=12), second_moment(normal(9, 5, seed=13)))
    assert condition_number(op) == condition_number(op)


def result(**changes):
    some = ConditionNumber(largest=8.0, smallest=2.0, rank=3, gap=1e9, residual=1e-9, method="some method")
    return dataclasses.replace(some, **changes)


def test_a_result_is_a_number_and_a_line_that_says_how_it_was_obtained():
    assert result().value == float(result()) == 4.0
    assert str(result()) == (
        "condition number 4: eigenvalues 8 to 2, rank 3 (gap 1e+09), relative residual 1e-09, some method"
    )


def test_a_result_that_is_not_resolved_is_a_lower_bound_and_no_number():
    lost = result(residual=3.0)
    assert result(residual=1e-3).resolved
    assert not lost.resolved
    assert lost.value == 8 / (2 * (1 + 3.0))
    assert "condition number at least 1.0e+00 (not resolved)" in str(lost)
    with pytest.raises(NotResolvedError, match=r"at least 1.0e\+00 .* relative error of 3e\+00"):
        float(lost)


def test_an_iteration_cut_short_raises_and_returns_nothing():
    op = linear_gauss_newton(network((60, 40, 50, 20), seed=14), torch.eye(60, dtype=torch.float64))
    with pytest.raises(NotConvergedError, match="did not converge: after 1 steps its relative err"):
        condition_number(op, max_steps=1)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "matrix, message",
    [
        (torch.ones(3), r"The matrix has shape \(3,\); a square matrix"),
        (torch.ones(2, 3), r"The matrix has shape \(2, 3\); a square matrix"),
        (torch.tensor([[1.0, 0.5], [0.0, 1.0]]), "The matrix is not symmetric: .* 5.0e-01"),
        (torch.diag(torch.tensor([1.0, -1.0])), "The matrix has the negative eigenvalue -1.0e+"),
        (-torch.eye(2), "The matrix has the negative eigenvalue -1.0e+"),
        (torch.zeros(2, 2), "The matrix is zero"),
        (torch.empty(0, 0), "The matrix is empty"),
        (torch.diag(torch.tensor([1.0, torch.inf])), "The matrix has 1 entries that are NaN"),
        (np.full((2, 2), np.nan), "The matrix has 4 entries that are NaN"),
    ],
)
def test_a_matrix_that_is_no_gauss_newton_matrix_is_refused(matrix, message):
    with pytest.raises(ValueError, match=message):
        condition_number(matrix)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "matrix, message",
    [
        ([[1.0]], "The operand is of type list; pass a torch module"),
        (None, "The operand is of type NoneType; pass a torch module"),
        (torch.eye(2, dtype=torch.complex128), "The matrix is complex"),
    ],
)
def test_a_matrix_of_another_type_is_refused(matrix, message):
    with pytest.raises(TypeError, match=message):
        condition_number(matrix)


@pytest.mark.bad_input
@pytest.mark.parametrize("rank", [-1, 0, 4])
def test_a_rank_that_the_matrix_cannot_have_is_refused(rank):
    with pytest.raises(ValueError, match=f"rank is {rank}; .* between 1 and .* 3"):
        condition_number(torch.eye(3), rank=rank)


@pytest.mark.bad_input
def test_a_rank_beyond_the_positive_eigenvalues_is_refused():
    with pytest.raises(ValueError, match=r"Eigenvalue number 2 is 0.0e\+00, not positive"):
        condition_number(torch.diag(torch.tensor([1.0, 0.0])), rank=2)


@pytest.mark.bad_input
def test_a_kronecker_sum_takes_no_rank():
    op = linear_gauss_newton([torch.eye(2)], torch.eye(2))
    with pytest.raises(TypeError, match="rank is not for a LayeredSum, which takes method"):
        condition_number(op, rank=4)


@pytest.mark.bad_input
def test_an_operator_that_is_zero_is_refused():
    op = linear_gauss_newton([torch.zeros(3, 2), torch.zeros(4, 3), torch.zeros(2, 4)], torch.eye(2))
    with pytest.raises(ValueError, match="is zero: it has no eigenvalue to divide by"):
        condition_number(op)


@pytest.mark.bad_input
def test_factors_that_are_not_finite_are_refused():
    huge = [torch.full(shape, 1e200, dtype=torch.float64) for shape in ((3, 2), (4, 3))]
    op = linear_gauss_newton(huge, torch.eye(2))
    with pytest.raises(ValueError, match="left has 16 entries that are NaN or infinite"):
        condition_number(op)


@pytest.mark.bad_input
@pytest.mark.parametrize("name, message", [("left", "left has 9"), ("right", "right has 4")])
def test_a_kronecker_sum_that_is_not_finite_is_refused(name, message):
    factors = {"left": torch.eye(3)[None], "right": torch.eye(2)[None], "basis": torch.eye(2)}
    factors[name] = torch.full_like(factors[name], torch.nan)
    with pytest.raises(ValueError, match=f"{message} entries that are NaN or infinite"):
        condition_number(KroneckerSum(**factors))


@pytest.mark.bad_input
def test_no_steps_at_all_are_refused():
    operator = linear_gauss_newton([torch.eye(2), torch.eye(2)], torch.eye(2))
    with pytest.raises(ValueError, match="at least one step"):
        condition_number(operator, max_steps=0)


@pytest.mark.bad_input
def test_a_rank_that_is_not_whole_is_refused():
    with pytest.raises(ValueError, match="whole number"):
        condition_number(torch.eye(3), rank=2.5)

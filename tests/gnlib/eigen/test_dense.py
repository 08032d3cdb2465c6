"""All eigenvalues of a matrix and singular values of a Jacobian: both ends, the rank, and what is refused."""

import mpmath
import numpy as np
import pytest
import torch

from gnlib import condition_number
from gnlib.eigen.dense import dense_ends, ends_of, graded_ends, singular_value_ends
from tests.gnlib.eigen.helpers import EPS, assert_ends, assert_right, double, ends, spectrum_of
from tests.oracles import mp_spectrum, normal, orthogonal, with_spectrum


@ends
@pytest.mark.parametrize("least", [0.5, 1e-6, 1e-13])
def test_dense_ends_of_clusters(lower, upper, least):
    values = spectrum_of(lower, upper, 60, least=least)
    result = dense_ends(with_spectrum(values, seed=1))
    assert_right(result, values[-1], values[0], 60)
    assert result.resolved == (least > 1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_graded_ends_down_to_1e_22(seed):
    """D H D in fifty digits, where all eigenvalues of H are close to one."""
    n, scale = 9, 10.0 ** -np.random.default_rng(seed).uniform(0, 11, 9)
    scale[:2] = 1, 1e-11
    factor = normal(n, 3 * n, seed=seed) / (3 * n) ** 0.5
    matrix = double(scale)[:, None] * (factor @ factor.T) * double(scale)
    matrix = (matrix + matrix.T) / 2
    result, truth = graded_ends(matrix), mp_spectrum(matrix)
    assert truth[-1] < 1e-20 * truth[0]
    assert result.resolved
    assert_right(result, truth[0], truth[-1], n)
    assert result.gap == pytest.approx(result.smallest / (EPS * result.largest))


def test_the_error_of_graded_ends_is_that_of_the_matrix_scaled_to_a_unit_diagonal():
    near = 2.0**-20  # to a singular one
    scale = double([1.0, 1e-6])
    result = graded_ends(scale[:, None] * double([[1.0, 1 - near], [1 - near, 1.0]]) * scale)
    assert result.residual == pytest.approx(2 * EPS / near, rel=1e-6, abs=0)


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


def test_the_gap_is_what_separates_the_smallest_eigenvalue_from_those_that_count_as_zero():
    matrix = torch.diag(torch.tensor([1.0, 1e-4, 1e-12], dtype=torch.float64))
    assert condition_number(matrix, rank=2).gap == pytest.approx(1e8)
    assert condition_number(matrix, rank=3).gap == pytest.approx(1e-12 / 2**-52)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "matrix, error, message",
    [
        (torch.ones(3), ValueError, r"The matrix has shape \(3,\); a square matrix"),
        (torch.tensor([[1.0, 0.5], [0.0, 1.0]]), ValueError, "The matrix is not symmetric: .* 5.0e-01"),
        (torch.diag(torch.tensor([1.0, -1.0])), ValueError, "The matrix has the negative eigenvalue -1.0e+"),
        (-torch.eye(2), ValueError, "The matrix has the negative eigenvalue -1.0e+"),
        (torch.zeros(2, 2), ValueError, "The matrix is zero"),
        (torch.diag(torch.tensor([1.0, torch.inf])), ValueError, "The matrix has 1 entries that are NaN"),
        (None, TypeError, "The operand is of type NoneType; pass a torch module"),
    ],
)
def test_a_matrix_that_is_no_gauss_newton_matrix_is_refused(matrix, error, message):
    with pytest.raises(error, match=message):
        condition_number(matrix)


@pytest.mark.bad_input
@pytest.mark.parametrize("rank", [-1, 0, 4, 2.5])
def test_a_rank_that_the_matrix_cannot_have_is_refused(rank):
    with pytest.raises(ValueError, match=f"rank is {rank}; it must be a whole number between 1 and .* 3"):
        condition_number(torch.eye(3), rank=rank)


@pytest.mark.bad_input
def test_a_rank_beyond_the_positive_eigenvalues_is_refused():
    with pytest.raises(ValueError, match=r"Eigenvalue number 2 is 0.0e\+00, not positive"):
        condition_number(torch.diag(torch.tensor([1.0, 0.0])), rank=2)


# Singular values of a Jacobian in blocks, of which the square keeps no digit


def factor_of(values, rows, columns, *, seed):
    """A matrix of these singular values, up to its rounding."""
    left, right = (orthogonal(size, len(values), seed=seed + i) for i, size in enumerate((rows, columns)))
    return left * double(values) @ right.T


def in_blocks(jacobian, seed, zeros=False):
    """The same columns in blocks of random widths, and a block of zeros."""
    random = np.random.default_rng(seed)
    cuts = sorted({*random.integers(1, jacobian.shape[1] + 1, 4).tolist()} - {jacobian.shape[1]})
    parts = list(torch.tensor_split(jacobian, cuts, dim=1))
    if zeros:
        parts.insert(int(random.integers(len(parts) + 1)), torch.zeros(len(jacobian), 3, dtype=torch.float64))
    return parts


def mp_singular_values(matrix):
    """In fifty digits, of the matrix as it is."""
    with mpmath.workdps(60):
        exact = mpmath.matrix(matrix.tolist())
        square = exact * exact.T if exact.rows <= exact.cols else exact.T * exact
        return [mpmath.sqrt(abs(v)) for v in mp_spectrum(square, 60)]


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("rows, columns", [(9, 4), (9, 9), (9, 40), (1, 7), (7, 1), (1, 1)])
@pytest.mark.parametrize("kind", ["1 to 1e-11", "random", "clusters", "deficient", "rank one"])
def test_factor_ends_are_those_of_fifty_digits(kind, rows, columns, zeros):
    size = min(rows, columns)
    random = np.random.default_rng(size)
    values = {
        "1 to 1e-11": np.logspace(0, -11, size),
        "random": 10 ** -random.uniform(0, 9, size),
        "clusters": np.where(np.arange(size) < size / 2, 1, 1e-9) * (1 + 1e-8 * random.random(size)),
        "deficient": np.where(np.arange(size) < (size + 1) // 2, 1.5, 0),
        "rank one": np.where(np.arange(size) < 1, 1e-3, 0),
    }[kind]
    jacobian = factor_of(values, rows, columns, seed=1)
    result = singular_value_ends(iter(in_blocks(jacobian, 2, zeros)))
    truth = mp_singular_values(jacobian)
    assert result.rank == np.count_nonzero(values)
    assert result.largest == pytest.approx(float(truth[0] ** 2), rel=1e-13)
    assert result.smallest == pytest.approx(float(truth[result.rank - 1] ** 2), rel=2 * result.residual)
    assert result.resolved


def test_singular_values_at_the_threshold_count_as_zero_and_those_above_it_do_not():
    for factor, rank in ((0.9, 1), (1.1, 2)):
        jacobian = torch.zeros(2, 50, dtype=torch.float64)
        jacobian[0, 0], jacobian[1, 1] = 1.0, factor * 50 * EPS
        assert singular_value_ends([jacobian]).rank == rank
        assert singular_value_ends(jacobian.split(10, 1)).rank == rank
        assert singular_value_ends([jacobian.T]).rank == rank


@pytest.mark.bad_input
@pytest.mark.parametrize("parts, message", [([], "no block"), ([torch.zeros(3, 2)] * 2, "The Jacobian is zero")])
def test_a_factor_that_is_nothing_is_refused(parts, message):
    with pytest.raises(ValueError, match=message):
        singular_value_ends(parts)


def test_the_rounding_of_a_matrix_moves_its_smallest_eigenvalue_by_as_much_as_the_error_says():
    """Weyl: every eigenvalue moves by at most the norm of what is added; a multiple of the identity moves all by it."""
    matrix, rounding = torch.diag(torch.tensor([1e-6, 1e-3, 1.0]).double()), 1e-12
    exact, rounded = (
        ends_of(torch.linalg.eigvalsh(m), rounding=rounding, method="by hand")
        for m in (matrix, matrix - rounding * torch.eye(3))
    )
    plain = ends_of(torch.linalg.eigvalsh(matrix), method="by hand")
    moved = 1 - rounded.smallest / exact.smallest
    assert exact.residual - plain.residual == pytest.approx(moved, rel=1e-3) == pytest.approx(1e-6, rel=1e-3)

"""All eigenvalues of a matrix and singular values of a Jacobian: both ends, the rank, and their errors."""

import mpmath
import numpy as np
import pytest
import torch

from gnlib import condition_number
from gnlib.eigen.dense import ends_of, graded_ends, singular_value_ends
from tests.gnlib.eigen.helpers import EPS, assert_right, double, eye
from tests.oracles import mp_spectrum, normal, orthogonal, with_spectrum


def prescribed(kind, seed):
    random = np.random.default_rng(seed)
    n = int(random.integers(4, 16))
    match kind:
        case "log-uniform to 1e-12":
            return 10 ** random.uniform(-12, 0, n)
        case "log-uniform to 1e-22":
            return 10 ** random.uniform(-22, 0, n)
        case "two clusters":
            ends = np.where(random.random(n) < 0.5, 1, 10 ** -random.uniform(8, 15))
            return ends * (1 + 1e-3 * random.random(n))
        case "rank deficient":
            return np.append(1, np.where(random.random(n) < 0.4, 0, 10 ** random.uniform(-10, 0, n)))
        case "even steps":
            return 10 ** -np.linspace(0, random.uniform(5, 18), n)


KINDS = ["log-uniform to 1e-12", "log-uniform to 1e-22", "two clusters", "rank deficient", "even steps"]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", KINDS)
def test_dense_eigenvalues_are_right_to_the_residual_stated(kind, seed):
    matrix = with_spectrum(prescribed(kind, seed), seed=seed)
    result, truth = condition_number(matrix), mp_spectrum(matrix)
    smallest = float(truth[result.rank - 1])
    assert result.largest == pytest.approx(float(truth[0]), rel=1e-13)
    assert result.smallest == pytest.approx(smallest, rel=2 * result.residual + 1e-13)
    assert all(abs(v) <= 2 * result.residual * smallest for v in truth[result.rank :])
    assert not result.resolved or float(result) == pytest.approx(float(truth[0]) / smallest, rel=2e-3)


@pytest.mark.parametrize("seed", range(6))
def test_graded_ends_down_to_1e_22(seed):
    """D H D in fifty digits, where all eigenvalues of H are close to one."""
    n, scale = 9, double(10.0 ** -np.random.default_rng(seed).uniform(0, 11, 9))
    scale[:2] = double([1, 1e-11])
    factor = normal(n, 3 * n, seed=seed) / (3 * n) ** 0.5
    matrix = scale[:, None] * (factor @ factor.T) * scale
    matrix = (matrix + matrix.T) / 2
    result, truth = graded_ends(matrix), mp_spectrum(matrix)
    assert truth[-1] < 1e-20 * truth[0]
    assert result.resolved
    assert_right(result, truth[0], truth[-1], n)
    assert result.gap == pytest.approx(result.smallest / (EPS * result.largest))


def test_the_error_of_graded_ends_is_that_of_the_matrix_scaled_to_a_unit_diagonal():
    near, scale = 2.0**-20, double([1.0, 1e-6])  # near a singular one
    result = graded_ends(scale[:, None] * double([[1.0, 1 - near], [1 - near, 1.0]]) * scale)
    assert result.residual == pytest.approx(2 * EPS / near, rel=1e-6, abs=0)


def test_a_value_counts_as_zero_up_to_the_larger_dimension_times_the_rounding():
    for factor, rank in ((0.9, 1), (1.1, 2)):
        diagonal = double([3.0] + [0.0] * 48 + [3.0 * factor * 50 * EPS])
        assert condition_number(torch.diag(diagonal)).rank == rank
        jacobian = torch.zeros(2, 50, dtype=torch.float64)
        jacobian[0, 0], jacobian[1, 1] = 1.0, factor * 50 * EPS
        for blocks in ([jacobian], jacobian.split(10, 1), [jacobian.T]):
            assert singular_value_ends(blocks).rank == rank


def test_the_gap_is_what_separates_the_smallest_eigenvalue_from_those_that_count_as_zero():
    matrix = torch.diag(double([1.0, 1e-4, 1e-12]))
    assert condition_number(matrix, rank=2).gap == pytest.approx(1e8)
    assert condition_number(matrix, rank=3).gap == pytest.approx(1e-12 / EPS)


def test_the_rounding_of_a_matrix_moves_its_smallest_eigenvalue_by_as_much_as_the_error_says():
    """Weyl: every eigenvalue moves by at most the norm of what is added; a multiple of the identity moves all by it."""
    matrix, rounding = torch.diag(double([1e-6, 1e-3, 1.0])), 1e-12
    plain, exact, rounded = (
        ends_of(torch.linalg.eigvalsh(m), rounding=error, method="by hand")
        for m, error in ((matrix, 0.0), (matrix, rounding), (matrix - rounding * eye(3), rounding))
    )
    moved = 1 - rounded.smallest / exact.smallest
    assert exact.residual - plain.residual == pytest.approx(moved, rel=1e-3) == pytest.approx(1e-6, rel=1e-3)


# Singular values of a Jacobian in blocks, of which the square keeps no digit


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
    jacobian = orthogonal(rows, size, seed=1) * double(values) @ orthogonal(columns, size, seed=2).T
    nothing = [torch.zeros(rows, 3).double()] * zeros
    blocks = jacobian.split(3, 1)
    result = singular_value_ends(iter([*nothing, *blocks[:2], *nothing, *blocks[2:]]))
    with mpmath.workdps(60):
        exact = mpmath.matrix((jacobian if rows <= columns else jacobian.T).tolist())
        truth = mp_spectrum(exact * exact.T, 60)
    assert result.rank == np.count_nonzero(values)
    assert result.largest == pytest.approx(float(truth[0]), rel=1e-13)
    assert result.smallest == pytest.approx(float(truth[result.rank - 1]), rel=2 * result.residual)
    assert result.resolved

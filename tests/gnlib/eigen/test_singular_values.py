"""Singular values of a Jacobian in blocks, of which the square keeps no digit."""

import mpmath
import numpy as np
import pytest
import torch

from gnlib import condition_number
from gnlib.eigen.dense import singular_value_ends
from tests.gnlib.eigen.helpers import EPS, double
from tests.oracles import mp_spectrum, orthogonal


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


def test_factor_ends_of_graded_columns():
    jacobian = factor_of([1.0, 0.9, 0.5], 3, 60, seed=3) * torch.logspace(0, -12, 60, dtype=torch.float64)
    truth = mp_singular_values(jacobian)
    for parts in (in_blocks(jacobian, 4), in_blocks(jacobian.flip(1), 4), jacobian.split(1, dim=1)):
        result = singular_value_ends(parts)
        assert result.smallest == pytest.approx(float(truth[-1] ** 2), rel=2 * result.residual)


def test_1e_22_is_found_from_the_factor_and_refused_from_its_square():
    values = np.logspace(0, -11, 12)
    jacobian = factor_of(values, 12, 200, seed=5)
    result = singular_value_ends(in_blocks(jacobian, 6))
    assert result.resolved
    assert result.rank == 12
    assert float(result) == pytest.approx(1e22, rel=4 * result.residual)
    try:
        squared = condition_number(jacobian @ jacobian.T, rank=12)
    except ValueError as error:
        assert "not positive" in str(error)
    else:
        assert not squared.resolved
        assert squared.value <= 1e22
    assert not condition_number(jacobian @ jacobian.T).resolved


def test_singular_values_at_the_threshold_count_as_zero_and_those_above_it_do_not():
    for factor, rank in ((0.9, 1), (1.1, 2)):
        jacobian = torch.zeros(2, 50, dtype=torch.float64)
        jacobian[0, 0], jacobian[1, 1] = 1.0, factor * 50 * EPS
        assert singular_value_ends([jacobian]).rank == rank
        assert singular_value_ends(jacobian.split(10, 1)).rank == rank
        assert singular_value_ends([jacobian.T]).rank == rank


def test_the_gap_tells_what_counts_as_zero():
    jacobian = torch.zeros(2, 1000, dtype=torch.float64)
    jacobian[0, 0], jacobian[1, 1] = 1.0, 1e-13
    result = singular_value_ends([jacobian])
    assert result.rank == 1
    assert result.gap == pytest.approx(1e26)
    assert result.residual == pytest.approx(2e-13, abs=0)  # of a square, twice that of the singular value


@pytest.mark.bad_input
@pytest.mark.parametrize("parts, message", [([], "no block"), ([torch.zeros(3, 2)] * 2, "The Jacobian is zero")])
def test_a_factor_that_is_nothing_is_refused(parts, message):
    with pytest.raises(ValueError, match=message):
        singular_value_ends(parts)

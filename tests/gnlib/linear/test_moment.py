"""Second moments, their factors, and whitening."""

import mpmath
import pytest
import torch

import gnlib
from gnlib import SecondMoment, linear_gauss_newton, second_moment, whiten
from tests.oracles import mp_kronecker_sum, mp_spectrum, orthogonal, samples

SHAPES = [(9, 4, None), (4, 9, None), (5, 5, None), (9, 4, 2), (4, 9, 2), (1, 3, None), (3, 1, None)]
shapes = pytest.mark.parametrize("n, d, rank", SHAPES)


def close(actual, expected, tolerance=1e-12):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def matrix(moment):
    return moment.basis * moment.eigenvalues @ moment.basis.T


@shapes
def test_second_moment_is_the_mean_of_outer_products(n, d, rank):
    x = samples(n, d, rank=rank, seed=1)
    close(second_moment(x), torch.stack([torch.outer(row, row) for row in x]).mean(0))


@shapes
def test_whitening_makes_the_second_moment_the_projector_on_its_range(n, d, rank):
    x = samples(n, d, rank=rank, seed=2)
    projector = torch.linalg.pinv(x, rtol=1e-10) @ x
    close(second_moment(whiten(x)), projector)


@shapes
@pytest.mark.parametrize("factor", ["from_data", "from_matrix"])
def test_factors_multiply_to_the_second_moment(n, d, rank, factor):
    x = samples(n, d, rank=rank, seed=4)
    moment = SecondMoment.from_data(x) if factor == "from_data" else SecondMoment.from_matrix(x.T @ x / n)
    r = rank or min(n, d)
    assert moment.basis.shape == (d, r)
    assert moment.eigenvalues.shape == (r,)
    assert (moment.eigenvalues.diff() <= 0).all()
    close(moment.basis.T @ moment.basis, torch.eye(r, dtype=torch.float64))
    close(matrix(moment), x.T @ x / n)


def test_data_resolve_eigenvalues_that_the_matrix_rounds_away():
    s = torch.tensor([1.0, 1e-5, 1e-10], dtype=torch.float64)
    x = orthogonal(8, 3, seed=8) * s @ orthogonal(3, 3, seed=9).T * 8**0.5
    torch.testing.assert_close(SecondMoment.from_data(x).eigenvalues, s**2, rtol=1e-4, atol=0)
    assert len(SecondMoment.from_matrix(second_moment(x)).eigenvalues) == 2


@pytest.mark.parametrize("shape", [(500, 2), (2, 500)])
@pytest.mark.parametrize(("size", "rank"), [(250, 1), (1000, 2)])
def test_a_direction_counts_from_the_larger_dimension_times_eps_on(shape, size, rank):
    x = torch.zeros(shape, dtype=torch.float64)
    x[0, 0], x[1, 1] = 1.0, size * torch.finfo(x.dtype).eps
    assert len(SecondMoment.from_data(x).eigenvalues) == rank
    assert torch.linalg.matrix_rank(whiten(x)) == rank


@pytest.mark.parametrize("function", [second_moment, whiten])
def test_single_precision_is_promoted(function):
    x = samples(6, 3, seed=10).float()
    close(function(x), function(x.double()), 0)


@pytest.mark.bad_input
@pytest.mark.parametrize("function", [second_moment, whiten, SecondMoment.from_data])
@pytest.mark.parametrize(
    "x, error, message",
    [
        (torch.ones(3), ValueError, r"x has shape \(3,\); samples in rows"),
        (torch.ones(2, 3, 4), ValueError, r"x has shape \(2, 3, 4\); samples in rows"),
        (torch.empty(0, 3), ValueError, r"x is empty \(shape \(0, 3\)\)"),
        (torch.tensor([[1.0, torch.nan]]), ValueError, "x has 1 entries that are NaN or infinite"),
        (torch.ones(2, 3).numpy(), TypeError, "x is of type ndarray; pass a torch tensor"),
        ([[1.0, 2.0]], TypeError, "x is of type list; pass a torch tensor"),
        (torch.ones(2, 3, dtype=torch.complex128), TypeError, r"x is complex \(torch.complex128\)"),
    ],
)
def test_data_that_are_not_samples_in_rows_are_refused(function, x, error, message):
    with pytest.raises(error, match=message):
        function(x)


@pytest.mark.bad_input
@pytest.mark.parametrize("function", [whiten, SecondMoment.from_data])
def test_data_that_are_zero_span_nothing(function):
    with pytest.raises(ValueError, match="x is zero: it spans no direction"):
        function(torch.zeros(4, 3))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "moment, message",
    [
        (torch.ones(2, 3), r"second_moment has shape \(2, 3\); a square matrix"),
        (torch.tensor([[1.0, 0.5], [0.0, 1.0]]), "second_moment is not symmetric: .* 5.0e-01"),
        (torch.diag(torch.tensor([1.0, -0.1])), "second_moment has the negative eigenvalue -1.0e-01"),
        (torch.zeros(2, 2), "second_moment is zero"),
        (-torch.eye(2), "second_moment is zero|negative eigenvalue -1.0e"),
        (torch.full((2, 2), torch.inf), "second_moment has 4 entries"),
        (torch.empty(0, 0), "second_moment is empty"),
    ],
)
def test_a_matrix_that_is_no_second_moment_is_refused(moment, message):
    with pytest.raises(ValueError, match=message):
        SecondMoment.from_matrix(moment)
    with pytest.raises(ValueError, match=message):
        linear_gauss_newton([torch.ones(1, 2)], moment)


# The error of singular values and eigenvalues


def true_ends(weights, x):
    """Both ends of the matrix on these data, by fifty digits."""
    with mpmath.workdps(60):
        rows = mpmath.matrix(x.tolist())
        exact = rows.T * rows / len(x)
        left, right = [], []
        for layer in range(len(weights)):
            above, below = mpmath.eye(len(weights[-1])), mpmath.eye(x.shape[1])
            for w in reversed(weights[layer + 1 :]):
                above = above * mpmath.matrix(w.tolist())
            for w in weights[:layer]:
                below = mpmath.matrix(w.tolist()) * below
            left.append(above * above.T)
            right.append(below.T * below)
        root = mpmath.cholesky(exact)  # L^T B^T B L has the eigenvalues of the product with the symmetric root
        values = mp_spectrum(mp_kronecker_sum(left, [root.T * b * root for b in right], 60), 60)
        return float(values[0]), float(values[-1])


@pytest.mark.parametrize("decades", [0, 4, 8, 11, 13])
@pytest.mark.parametrize("depth", [1, 2])
def test_the_error_of_the_singular_values_of_data_is_in_the_residual(decades, depth):
    spread = torch.logspace(0, -decades, 4, dtype=torch.float64)
    weights = [samples(5, 4, seed=1), samples(2, 5, seed=2)] if depth == 2 else [samples(2, 4, seed=1)]
    for seed in range(6):
        x = (orthogonal(9, 4, seed=seed) * spread) @ orthogonal(4, 4, seed=seed + 7).T
        largest, smallest = true_ends(weights, x)
        found = gnlib.condition_number(linear_gauss_newton(weights, SecondMoment.from_data(x)))
        assert found.rank == 8
        assert abs(found.smallest / smallest - 1) <= 4 * found.residual
        assert abs(found.largest / largest - 1) <= 4 * found.residual
        assert found.resolved == (decades < 12)


@pytest.mark.bad_input
@pytest.mark.parametrize("basis, s", [(torch.eye(3), torch.tensor([2.0, 1.0, -1.0])), (torch.eye(3), torch.ones(2))])
def test_factors_that_are_no_second_moment_are_refused(basis, s):
    with pytest.raises(ValueError, match="second_moment has a basis and eigenvalues of shapes"):
        linear_gauss_newton([torch.ones(2, 3)], SecondMoment(basis, s))

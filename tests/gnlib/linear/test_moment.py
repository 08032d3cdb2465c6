"""Second moments, their factors, and whitening."""

import mpmath
import pytest
import torch

from gnlib import SecondMoment, condition_number, linear_gauss_newton, second_moment, whiten
from tests.oracles import mp_kronecker_sum, mp_spectrum, orthogonal, samples


def close(actual, expected, tolerance=1e-12):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "n, d, rank", [(9, 4, None), (4, 9, None), (5, 5, None), (9, 4, 2), (4, 9, 2), (1, 3, None), (3, 1, None)]
)
def test_second_moments_their_factors_and_whitening_are_what_they_are_defined_as(n, d, rank):
    x, r = samples(n, d, rank=rank, seed=1), rank or min(n, d)
    expected = torch.stack([torch.outer(row, row) for row in x]).mean(0)
    close(second_moment(x), expected)
    close(second_moment(whiten(x)), torch.linalg.pinv(x, rtol=1e-10) @ x)
    for moment in (SecondMoment.from_data(x), SecondMoment.from_matrix(x.T @ x / n)):
        assert moment.basis.shape == (d, r) and moment.eigenvalues.shape == (r,)
        assert (moment.eigenvalues.diff() <= 0).all()
        close(moment.basis.T @ moment.basis, torch.eye(r, dtype=torch.float64))
        close(moment.basis * moment.eigenvalues @ moment.basis.T, expected)
    for function in (second_moment, whiten):
        close(function(x.float()), function(x.float().double()), 0)


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


DATA = [second_moment, whiten, SecondMoment.from_data]


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "functions, given, message",
    [
        (DATA, torch.ones(3), r"x has shape \(3,\); samples in rows"),
        (DATA, torch.ones(2, 3, 4), r"x has shape \(2, 3, 4\); samples in rows"),
        (DATA, torch.empty(0, 3), r"x is empty \(shape \(0, 3\)\)"),
        (DATA, torch.tensor([[1.0, torch.nan]]), "x has 1 entries that are NaN or infinite"),
        (DATA, torch.ones(2, 3).numpy(), "x is of type ndarray; pass a torch tensor"),
        (DATA, torch.ones(2, 3, dtype=torch.complex128), r"x is complex \(torch.complex128\)"),
        (DATA[1:], torch.zeros(4, 3), "x is zero: it spans no direction"),
        ([SecondMoment.from_matrix], torch.ones(2, 3), r"second_moment has shape \(2, 3\); a square matrix"),
        ([SecondMoment.from_matrix], torch.ones(2, 2).tril(), r"second_moment is not symmetric: .* 1.0e\+00"),
        ([SecondMoment.from_matrix], torch.diag(torch.tensor([1.0, -0.1])), "the negative eigenvalue -1.0e-01"),
        ([SecondMoment.from_matrix], torch.zeros(2, 2), "second_moment is zero"),
        ([SecondMoment.from_matrix], -torch.eye(2), "second_moment is zero|negative eigenvalue -1.0e"),
        ([SecondMoment.from_matrix], torch.full((2, 2), torch.inf), "second_moment has 4 entries"),
        ([SecondMoment.from_matrix], torch.empty(0, 0), "second_moment is empty"),
    ],
)
def test_what_is_no_data_and_no_second_moment_is_refused(functions, given, message):
    for function in functions:
        with pytest.raises((ValueError, TypeError), match=message):
            function(given)


def true_ends(weights, x):
    """Both ends of the matrix on these data, by fifty digits."""
    with mpmath.workdps(60):
        rows = mpmath.matrix(x.tolist())
        root = mpmath.cholesky(rows.T * rows / len(x))  # L^T B^T B L has the eigenvalues with the symmetric root
        matrices = [mpmath.matrix(w.tolist()) for w in weights]
        above, below = mpmath.eye(len(weights[-1])), mpmath.eye(x.shape[1])
        left, right = [above], [root.T * root]
        for w in reversed(matrices[1:]):
            above = above * w
            left.insert(0, above * above.T)
        for w in matrices[:-1]:
            below = w * below
            right.append(root.T * below.T * below * root)
        values = mp_spectrum(mp_kronecker_sum(left, right, 60), 60)
        return float(values[0]), float(values[-1])


@pytest.mark.parametrize("decades", [0, 4, 8, 11, 13])
@pytest.mark.parametrize("depth", [1, 2])
def test_the_error_of_the_singular_values_of_data_is_in_the_residual(decades, depth):
    spread = torch.logspace(0, -decades, 4, dtype=torch.float64)
    weights = [samples(5, 4, seed=1), samples(2, 5, seed=2)] if depth == 2 else [samples(2, 4, seed=1)]
    for seed in range(6):
        x = (orthogonal(9, 4, seed=seed) * spread) @ orthogonal(4, 4, seed=seed + 7).T
        largest, smallest = true_ends(weights, x)
        found = condition_number(linear_gauss_newton(weights, SecondMoment.from_data(x)))
        assert found.rank == 8
        assert abs(found.smallest / smallest - 1) <= 4 * found.residual
        assert abs(found.largest / largest - 1) <= 4 * found.residual
        assert found.resolved == (decades < 12)

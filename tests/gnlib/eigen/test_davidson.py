"""The parts of the iteration: the basis of the space that it searches, and the bounds on the errors of its values."""

import numpy as np
import pytest
import torch

from gnlib.eigen.davidson import orthonormalise, preconditioned_errors, residual_errors
from tests.gnlib.eigen.helpers import double, eye
from tests.oracles import normal, orthogonal

A, B, C = normal(3, 9, 1, seed=3)
COLUMNS = {
    "independent": ([A, B, C], 3),
    "a zero": ([A, 0 * A, B], 2),
    "zeros": ([0 * A, 0 * B], 0),
    "duplicates last": ([A, B, A], 2),
    "duplicates first": ([A, A, B], 2),
    "duplicates": ([A, A, B, B, C, -C, A + B], 3),
    "tiny": ([1e-200 * A, B, 1e-290 * C], 3),
    "huge": ([1e150 * A, B], 2),
    "nearly equal": ([A, A + 1e-9 * B], 2),
    "equal up to rounding": ([A, A + 1e-15 * B, C], 2),
    "more than rows": ([*normal(14, 9, 1, seed=4)], 9),
}


@pytest.mark.parametrize("columns, rank", COLUMNS.values(), ids=COLUMNS.keys())
def test_orthonormal_columns_span_what_they_are_made_of(columns, rank):
    columns = torch.cat(columns, 1)
    basis = orthonormalise(columns)
    assert basis.shape == (9, rank)
    torch.testing.assert_close(basis.T @ basis, eye(rank), rtol=0, atol=1e-14)
    columns = columns / columns.abs().amax(0).clamp_min(1e-300)
    torch.testing.assert_close(basis @ (basis.T @ columns), columns, rtol=0, atol=1e-12)


# Errors


def ritz_block(seed, largest):
    """A matrix, its eigenvalues, Ritz values at one end, what is orthogonal to all of their vectors but the last, and
    residuals."""
    random = np.random.default_rng(seed)
    p = int(random.integers(3, 14))
    b = int(random.integers(1, p))
    values = 10.0 ** random.uniform(-5, 0, p) if seed % 2 else random.uniform(0.01, 1, p)
    if seed % 3 == 0:
        near = values.argmax() if largest else values.argmin()
        values[:3] = values[near] * (1 + 10.0 ** -random.uniform(2, 12, 3))
    q = orthogonal(p, p, seed=seed)
    matrix = q * double(np.sort(values)[:: -1 if largest else 1].copy()) @ q.T
    matrix = (matrix + matrix.T) / 2
    x = torch.linalg.qr(q[:, :b] + 10.0 ** -random.uniform(0, 8) * normal(p, b, seed=seed + 1)).Q
    ritz, rotation = torch.linalg.eigh(x.T @ matrix @ x)
    if largest:
        ritz, rotation = ritz.flip(0), rotation.flip(1)
    x = x @ rotation
    others = torch.linalg.qr(x[:, :-1], mode="complete").Q[:, b - 1 :]
    return matrix, torch.linalg.eigvalsh(matrix), ritz, others, matrix @ x - x * ritz


def assert_bounds(values, ritz, error, first, rounding, *, relative_to, end):
    """Bounds of first order hold for some eigenvalue; a smaller one for the end, if it is given."""
    nearest = ((values[:, None] - ritz).abs() / relative_to).min(0).values
    assert (error <= first * (1 + 1e-12)).all() and torch.equal(error[1:], first[1:])
    assert (nearest <= first * (1 + 1e-9) + rounding).all()
    if end is None or error[0] >= first[0] * (1 - 1e-12):
        return False
    assert (end - ritz[0]).abs() / ritz[0] <= error[0] * (1 + 1e-9) + rounding[0]
    return True


@pytest.mark.parametrize("largest", [True, False])
def test_residual_errors_bound_the_errors_of_ritz_values(largest):
    second_order = 0
    for seed in range(200):
        matrix, values, ritz, others, residual = ritz_block(seed, largest)
        size, error = torch.linalg.vector_norm(residual, dim=0), residual_errors(ritz, residual)
        lowest, highest = torch.linalg.eigvalsh(others.T @ matrix @ others)[[0, -1]]
        beyond = highest <= ritz[-1] + size[-1] if largest else lowest >= ritz[-1] - size[-1]
        first = torch.cat([size[:1] / ritz[:1], error[1:]])
        assert (error <= size / ritz * (1 + 1e-12)).all()
        end = values[-1 if largest else 0] if beyond else None
        rounding = 1e-14 * values[-1] / ritz
        second_order += assert_bounds(values, ritz, error, first, rounding, relative_to=ritz, end=end)
    assert second_order > 40


def test_preconditioned_errors_bound_the_errors_of_ritz_values():
    second_order = 0
    for seed in range(200):
        matrix, values, ritz, others, residual = ritz_block(seed, largest=False)
        random, p = np.random.default_rng(seed), len(matrix)
        root, q = torch.linalg.cholesky(matrix), orthogonal(p, p, seed=seed + 2)
        slack = float(random.choice([0.1, 0.5, 1.0]))
        smaller = root @ (q * double(random.uniform(0.1, 1, p)) @ q.T) @ root.T / slack  # slack N <= G
        shift = float(random.choice([0.0, 0.5, 0.9])) * torch.linalg.eigvalsh(smaller)[0].item()
        solved = torch.linalg.solve(smaller - shift * eye(p), residual)
        first, error = (
            preconditioned_errors(ritz, residual, solved, slack=slack, shift=shift, proved=proved)
            for proved in (False, True)
        )
        beyond = torch.linalg.eigvalsh(others.T @ matrix @ others)[0] >= ritz[-1] * (1 - first[-1])
        end, larger = values[0] if beyond else None, values[:, None].maximum(ritz)
        rounding = 1e-13 * values[-1] / ritz
        second_order += assert_bounds(values, ritz, error, first, rounding, relative_to=larger, end=end)
    assert second_order > 40


def test_values_that_are_rounding_have_no_relative_error():
    residual = torch.full((3, 1), 1e-3, dtype=torch.float64)
    for value in (0.0, -1.0):
        assert torch.isinf(residual_errors(double([value]), residual)).all()
    found = preconditioned_errors(double([1.0]), residual, residual, slack=0.5, shift=4.0, proved=True)
    assert torch.isinf(found).all()

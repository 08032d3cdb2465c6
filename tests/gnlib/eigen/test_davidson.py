"""The iteration itself: one end of a spectrum, the bounds on its error, and the spaces that it searches."""

import numpy as np
import pytest
import torch

from gnlib import NotConvergedError
from gnlib.eigen.davidson import (
    extreme_eigenpair,
    krylov_space,
    orthonormalise,
    preconditioned_errors,
    residual_errors,
)
from tests.gnlib.eigen.helpers import both, double
from tests.oracles import normal, orthogonal, with_spectrum


def davidson(matrix, start, **changes):
    options = dict(
        block=3,
        largest=True,
        precondition=lambda r: r,
        errors=lambda values, residual, _: residual_errors(values, residual),
        tolerance=1e-8,
        max_steps=100,
    )
    apply = changes.pop("apply", None) or matrix.matmul
    return extreme_eigenpair(apply, start, **{**options, **changes})


LADDER = with_spectrum(np.linspace(1, 100, 60), seed=1)
END = {True: 100, False: 1}


@both
@pytest.mark.parametrize("block", [1, 2, 5, 60])
def test_an_extreme_eigenpair_has_the_error_that_it_states(largest, block):
    pair = davidson(LADDER, normal(60, block, seed=2), largest=largest, block=block)
    assert pair.error <= 1e-8
    assert pair.value == pytest.approx(END[largest], rel=2e-8)
    assert torch.linalg.norm(LADDER @ pair.vectors[:, 0] - pair.value * pair.vectors[:, 0]) < 1e-2
    assert torch.linalg.norm(pair.vectors[:, 0]) == pytest.approx(1)


NOT_CONVERGED = [
    (LADDER, dict(max_steps=1), "The {end} eigenvalue did not converge: after 1 steps"),
    (LADDER, dict(max_steps=2), "The {end} eigenvalue did not converge: after 2 steps"),
    (LADDER, dict(precondition=torch.zeros_like), "after 1 steps"),
    (-LADDER, {}, "relative error is inf"),
    (0 * LADDER, {}, "relative error is inf"),
]


@both
@pytest.mark.parametrize("matrix, options, message", NOT_CONVERGED)
def test_an_iteration_that_has_not_converged_raises(largest, matrix, options, message):
    with pytest.raises(NotConvergedError, match=message.format(end="largest" if largest else "smallest")):
        davidson(matrix, normal(60, 3, seed=2), largest=largest, **options)


def assert_orthonormal(basis):
    identity = torch.eye(basis.shape[1], dtype=torch.float64)
    torch.testing.assert_close(basis.T @ basis, identity, rtol=0, atol=1e-14)


def assert_spans(basis, columns):
    columns = scaled(columns)
    torch.testing.assert_close(basis @ (basis.T @ columns), columns, rtol=0, atol=1e-12)


def scaled(columns):
    largest = columns.abs().amax(0)
    return columns / torch.where(largest > 0, largest, 1)


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
    assert_orthonormal(basis)
    if rank:
        assert_spans(basis, columns)


@pytest.mark.parametrize("steps", [0, 1, 3, 30])
@pytest.mark.parametrize("twice", [False, True])
def test_a_krylov_space_contains_the_powers(steps, twice):
    matrix = with_spectrum(np.linspace(1, 2, 20), seed=1)
    start = normal(20, 2, seed=6)
    start = torch.cat([start, start], 1) if twice else start
    basis = krylov_space(matrix.matmul, start, steps)
    assert_orthonormal(basis)
    assert basis.shape[1] == min(20, 2 * (steps + 1))
    for power in range(min(steps, 9) + 1):
        assert_spans(basis, torch.linalg.matrix_power(matrix, power) @ start)


# Errors


def ritz_block(seed, largest):
    """A matrix, and Ritz vectors of some quality at one of its ends."""
    random = np.random.default_rng(seed)
    p = int(random.integers(3, 14))
    b = int(random.integers(1, p))
    values = 10.0 ** random.uniform(-5, 0, p) if seed % 2 else random.uniform(0.01, 1, p)
    if seed % 3 == 0:
        near = values.argmax() if largest else values.argmin()
        values[:3] = values[near] * (1 + 10.0 ** -random.uniform(2, 12, 3))
    q = orthogonal(p, p, seed=seed)
    order = np.sort(values)[::-1].copy() if largest else np.sort(values)
    matrix = q * double(order) @ q.T
    matrix = (matrix + matrix.T) / 2
    x = torch.linalg.qr(q[:, :b] + 10.0 ** -random.uniform(0, 8) * normal(p, b, seed=seed + 1)).Q
    ritz, rotation = torch.linalg.eigh(x.T @ matrix @ x)
    if largest:
        ritz, rotation = ritz.flip(0), rotation.flip(1)
    x = x @ rotation
    return matrix, torch.linalg.eigvalsh(matrix), ritz, x, matrix @ x - x * ritz


def rest(matrix, x):
    """Extreme eigenvalues of the matrix on what is orthogonal to all of x but its last column."""
    others = torch.linalg.qr(x[:, :-1], mode="complete").Q[:, x.shape[1] - 1 :]
    return torch.linalg.eigvalsh(others.T @ matrix @ others)[[0, -1]]


@both
def test_residual_errors_bound_the_errors_of_ritz_values(largest):
    second_order = 0
    for seed in range(200):
        matrix, values, ritz, x, residual = ritz_block(seed, largest)
        error = residual_errors(ritz, residual)
        size = torch.linalg.vector_norm(residual, dim=0)
        rounding = 1e-14 * values[-1] / ritz
        nearest = (values[:, None] - ritz).abs().min(0).values / ritz
        assert (error <= size / ritz * (1 + 1e-12)).all()
        assert (nearest[1:] <= error[1:] * (1 + 1e-9) + rounding[1:]).all()
        if error[0] == size[0] / ritz[0]:
            assert nearest[0] <= error[0] * (1 + 1e-9) + rounding[0]
            continue
        lowest, highest = rest(matrix, x)
        if highest <= ritz[-1] + size[-1] if largest else lowest >= ritz[-1] - size[-1]:
            second_order += 1
            end = values[-1] if largest else values[0]
            assert (end - ritz[0]).abs() / ritz[0] <= error[0] * (1 + 1e-9) + rounding[0]
    assert second_order > 40


def test_preconditioned_errors_bound_the_errors_of_ritz_values():
    second_order = 0
    for seed in range(200):
        matrix, values, ritz, x, residual = ritz_block(seed, largest=False)
        random, p = np.random.default_rng(seed), len(matrix)
        root, q = torch.linalg.cholesky(matrix), orthogonal(p, p, seed=seed + 2)
        slack = float(random.choice([0.1, 0.5, 1.0]))
        smaller = root @ (q * double(random.uniform(0.1, 1, p)) @ q.T) @ root.T / slack  # slack N <= G
        shift = float(random.choice([0.0, 0.5, 0.9])) * torch.linalg.eigvalsh(smaller)[0].item()
        solved = torch.linalg.solve(smaller - shift * torch.eye(p, dtype=torch.float64), residual)
        first, error = (
            preconditioned_errors(ritz, residual, solved, slack=slack, shift=shift, proved=proved)
            for proved in (False, True)
        )
        rounding = 1e-13 * values[-1] / ritz
        nearest = ((values[:, None] - ritz).abs() / values[:, None].maximum(ritz)).min(0).values
        assert (error <= first).all()
        assert torch.equal(error[1:], first[1:])
        assert (nearest <= first * (1 + 1e-9) + rounding).all()
        if error[0] < first[0] and rest(matrix, x)[0] >= ritz[-1] * (1 - first[-1]):
            second_order += 1
            assert 1 - values[0] / ritz[0] <= error[0] * (1 + 1e-9) + rounding[0]
    assert second_order > 40


def test_values_that_are_rounding_have_no_relative_error():
    residual = torch.full((3, 1), 1e-3, dtype=torch.float64)
    for value in (0.0, -1.0):
        assert torch.isinf(residual_errors(double([value]), residual)).all()
    assert torch.isinf(
        preconditioned_errors(double([1.0]), residual, residual, slack=0.5, shift=4.0, proved=True)
    ).all()

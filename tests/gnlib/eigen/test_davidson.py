"""The iteration itself: one end of a spectrum, and the spaces that it searches."""

import numpy as np
import pytest
import torch

from gnlib import NotConvergedError
from gnlib.eigen.davidson import extreme_eigenpair, krylov_space, orthonormal
from gnlib.eigen.ritz_errors import residual_errors
from tests.gnlib.eigen.helpers import both
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


@both
@pytest.mark.parametrize("max_steps", [1, 2])
def test_an_iteration_that_has_not_converged_raises(largest, max_steps):
    end = "largest" if largest else "smallest"
    with pytest.raises(NotConvergedError, match=f"The {end} eigenvalue did not converge: after {max_steps} steps"):
        davidson(LADDER, normal(60, 3, seed=2), largest=largest, max_steps=max_steps)


@pytest.mark.parametrize("decades", [10, 12, 14])
def test_the_rounding_of_large_columns_does_not_stay_in_a_small_value(decades):
    diagonal = torch.logspace(0, decades, 60, dtype=torch.float64)[:, None]
    pair = davidson(
        None,
        normal(60, 6, seed=0),
        apply=lambda v: diagonal * v,
        largest=False,
        block=4,
        precondition=lambda r: r / (diagonal - 0.9),
        norm=10.0**decades,
    )
    assert abs(pair.value - 1) <= pair.error + 1e-11


@both
def test_a_restart_loses_nothing(largest):
    pair = davidson(LADDER, normal(60, 3, seed=2), largest=largest, max_blocks=4, max_steps=400)
    assert pair.value == pytest.approx(END[largest], rel=2e-8)


@both
@pytest.mark.parametrize("columns", [4, 60])
def test_a_start_with_equal_columns_is_a_start_with_one(largest, columns):
    pair = davidson(LADDER, normal(60, 1, seed=2).repeat(1, columns), largest=largest)
    assert pair.value == pytest.approx(END[largest], rel=2e-8)


@both
def test_a_start_that_has_the_eigenvector_needs_one_step(largest):
    vectors = torch.linalg.eigh(LADDER).eigenvectors
    pair = davidson(LADDER, vectors[:, [0, 30, 31, 59]], largest=largest)
    assert pair.steps == 1
    assert pair.value == pytest.approx(END[largest], rel=1e-12)


@both
def test_an_eigenvector_inside_the_spectrum_does_not_end_the_search(largest):
    """The others of its block are far from settled."""
    inside = torch.linalg.eigh(LADDER).eigenvectors[:, [50 if largest else 9]]
    pair = davidson(LADDER, torch.cat([inside, normal(60, 2, seed=2)], 1), largest=largest)
    assert pair.value == pytest.approx(END[largest], rel=2e-8)


@both
def test_a_preconditioner_that_returns_nothing_raises_at_once(largest):
    with pytest.raises(NotConvergedError, match="after 1 steps"):
        davidson(LADDER, normal(60, 3, seed=2), largest=largest, precondition=torch.zeros_like)


@both
@pytest.mark.parametrize("good", [0, 1, 5])
def test_products_that_turn_nan_raise(largest, good):
    calls = iter(range(1000))

    def apply(x):
        return LADDER @ x * (1.0 if next(calls) < good else torch.nan)

    with pytest.raises((NotConvergedError, torch.linalg.LinAlgError)):
        davidson(LADDER, normal(60, 3, seed=2), largest=largest, apply=apply)
    assert next(calls) <= good + 2


@both
@pytest.mark.parametrize("start", [0.0, torch.nan])
@pytest.mark.bad_input
def test_a_start_that_spans_nothing_is_told_so(largest, start):
    with pytest.raises((ValueError, NotConvergedError, torch.linalg.LinAlgError)):
        davidson(LADDER, torch.full((60, 3), start, dtype=torch.float64), largest=largest)


@both
@pytest.mark.parametrize("matrix", [-LADDER, 0 * LADDER], ids=["negative", "zero"])
def test_no_relative_error_of_a_value_that_is_not_positive(largest, matrix):
    with pytest.raises(NotConvergedError, match="relative error is inf"):
        davidson(matrix, normal(60, 3, seed=2), largest=largest)


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
    basis = orthonormal(columns)
    assert basis.shape == (9, rank)
    assert_orthonormal(basis)
    if rank:
        assert_spans(basis, columns)


@pytest.mark.parametrize("columns, rank", COLUMNS.values(), ids=COLUMNS.keys())
def test_orthonormal_columns_complete_a_basis(columns, rank):
    columns, given = torch.cat(columns, 1), orthonormal(torch.cat([A, normal(9, 1, seed=5)], 1))
    whole = torch.cat([given, orthonormal(columns, given)], 1)
    assert_orthonormal(whole)
    assert_spans(whole, columns)
    assert whole.shape[1] == int(torch.linalg.matrix_rank(torch.cat([given, scaled(columns)], 1), atol=1e-11))


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


def test_columns_that_share_their_last_bit_of_news_add_one_direction():
    q = orthogonal(50, 50, seed=1)
    basis, last = q[:, :-1], q[:, -1:]
    columns = basis @ normal(49, 3, seed=2) + 1e-9 * last * torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    found = orthonormal(columns, basis)
    assert found.shape == (50, 1)
    assert (basis.mT @ found).abs().max() < 1e-15

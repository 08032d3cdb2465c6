"""Gram matrices, by blocks and by a factor that lies where they lie: right to the residual stated, or left to others.

The matrix that is factored in its own memory is afterwards as it was.
"""

from itertools import accumulate

import numpy as np
import pytest
import torch

from gnlib import condition_number
from gnlib.eigen import gram
from gnlib.eigen.davidson import orthonormalise, preconditioned_errors, residual_errors
from gnlib.eigen.result import Limits
from tests.gnlib.eigen.helpers import EPS, SIZE, assert_right, double, ends, eye, spectrum_of
from tests.oracles import normal, orthogonal, with_spectrum

OUTPUTS = [1, 2, 5, 10]


def by_output(*blocks):
    """The matrix with one of these blocks an output, in the order of samples."""
    k, n = len(blocks), len(blocks[0])
    order = torch.arange(n * k).reshape(k, n).T.flatten()
    return torch.block_diag(*blocks)[order][:, order]


def iterated(matrix, outputs):
    return gram.iteration(gram.Gram(matrix, outputs), Limits())


def factored(matrix):
    return gram.factor(gram.Gram(matrix, lent=True), Limits())


def assert_gram(matrix, outputs, *, found=True):
    """The result of the iteration, if it is `found`, is that of all eigenvalues."""
    result, values = iterated(matrix, outputs), torch.linalg.eigvalsh(matrix)
    assert (result is not None) or not found
    if result is not None:
        assert_right(result, values[-1], values[0], len(matrix))
        assert result.resolved or values[0] < 1e-10 * values[-1]
        assert result.residual >= EPS * (values[-1] / values[0]).item() * (1 - 1e-3)


@pytest.mark.parametrize("least", [1e-2, 1e-7, 1e-11])
@pytest.mark.parametrize("outputs", [2, 10])
@pytest.mark.parametrize("coupling", [0.0, 1e-8, 1e-3])
def test_ends_where_outputs_are_coupled_weakly(outputs, coupling, least):
    values = [spectrum_of((2, 1e-10), (3, 0.0), SIZE // outputs, least=least, seed=s) for s in range(outputs)]
    matrix = by_output(*(with_spectrum(v, seed=s) for s, v in enumerate(values)))
    noise, root = normal(SIZE, SIZE, seed=3), torch.linalg.cholesky(matrix)
    matrix = matrix + coupling * root @ (noise + noise.T) @ root.T / (2 * SIZE) ** 0.5
    assert_gram((matrix + matrix.T) / 2, outputs, found=least == 1e-2)


@pytest.mark.parametrize("outputs", OUTPUTS)
@pytest.mark.parametrize("hidden", [0, -1])
def test_ends_hidden_in_the_block_of_one_output(outputs, hidden):
    values = [np.linspace(0.4, 0.9, SIZE // outputs) for _ in range(outputs)]
    values[hidden][:2] = 1e-5, 2.0
    assert_gram(by_output(*(with_spectrum(v, seed=s) for s, v in enumerate(values))), outputs)


@pytest.mark.parametrize("value", [1e-6, 1e-2, 50.0])
@pytest.mark.parametrize("outputs", OUTPUTS[1:])
def test_ends_that_no_block_shows(outputs, value):
    """An eigenvector across two outputs whose blocks are all alike and far from the end."""
    across = torch.zeros(SIZE // outputs, outputs, dtype=torch.float64)
    across[:, 0] = normal(len(across), seed=4)
    across[:, 1] = -across[:, 0]
    across = across.flatten() / across.norm()
    assert_gram(eye(SIZE) - (1 - value) * torch.outer(across, across), outputs)


@pytest.mark.parametrize("lowest", [0.0, 1e-18, -1e-18, -1e-3, -2.0])
def test_what_is_not_definite_is_left_to_all_eigenvalues(lowest, monkeypatch):
    monkeypatch.setattr(gram, "DENSE_UP_TO", 100)
    values = np.linspace(1, 2, SIZE)
    values[0] = lowest
    matrix = with_spectrum(values, seed=7)
    for outputs in (1, 10):
        assert iterated(matrix, outputs) is None and factored(matrix) is None
        if lowest < -1e-6:
            with pytest.raises(ValueError, match=r"^The matrix has the negative eigenvalue -.*; a Gauss-Newton"):
                condition_number(matrix, outputs=outputs)
        else:
            result = condition_number(matrix, outputs=outputs)
            assert_right(result, 2.0, values[1], SIZE - 1)
            assert result.method == "dense eigenvalues, relative threshold"


# Factored where it lies


@pytest.fixture
def narrow(monkeypatch):
    """Several panels, the last one not full, of a small matrix."""
    monkeypatch.setattr(gram, "PANEL", 7)


def test_a_triangle_holds_the_factor_and_the_rest_the_matrix(narrow):
    matrix = with_spectrum(np.geomspace(1e-4, 1, 40), seed=1)
    before, x = matrix.clone(), normal(40, 3, seed=2)
    with gram.InPlaceFactor(matrix) as factor:
        torch.testing.assert_close(matrix.tril(), torch.linalg.cholesky(before), rtol=0, atol=1e-13)
        assert torch.equal(matrix.triu(1), before.triu(1))
        torch.testing.assert_close(factor.apply(x), before @ x, rtol=1e-13, atol=1e-14)
        torch.testing.assert_close(factor.solve(before @ x), x, rtol=1e-8, atol=1e-8)
    assert torch.equal(matrix, before)


@pytest.mark.parametrize("pivot", [0, 20, 39])
def test_a_matrix_that_is_not_definite_is_left_as_it_was(narrow, pivot):
    matrix = with_spectrum(np.linspace(1, 2, 40), seed=1)
    matrix[pivot, pivot] = -1.0
    before = matrix.clone()
    with pytest.raises(torch.linalg.LinAlgError, match="not positive definite"), gram.InPlaceFactor(matrix):
        pytest.fail("there is no factor")
    assert torch.equal(matrix, before)


@ends
@pytest.mark.parametrize("least", [1e-6, 1e-10])
def test_ends_of_a_prescribed_spectrum_that_has_clusters(lower, upper, least):
    """By the factor, and by the blocks of one output; those of five are coupled too strongly for some."""
    values = spectrum_of(lower, upper, least=least)
    matrix = with_spectrum(values, seed=2)
    before = matrix.clone()
    for outputs in (1, 5):
        assert_gram(matrix, outputs, found=(outputs, least) == (1, 1e-6))
    result = factored(matrix)
    assert_right(result, values[-1], values[0], SIZE)
    assert result.resolved and result.method.startswith("Cholesky factor")
    assert torch.equal(matrix, before)


def test_a_matrix_that_is_not_lent_is_never_written_to(monkeypatch):
    matrix = with_spectrum(np.linspace(1, 2, 30), seed=4)

    class Watched(gram.InPlaceFactor):
        def __init__(self, given):
            assert given.data_ptr() != matrix.data_ptr() and torch.equal(given, matrix)
            super().__init__(given)

    monkeypatch.setattr(gram, "DENSE_UP_TO", 20)
    monkeypatch.setattr(gram, "InPlaceFactor", Watched)
    assert condition_number(matrix).method.startswith("Cholesky factor")


@pytest.mark.slow
def test_it_takes_a_quarter_of_a_matrix_besides_and_less_of_a_larger_one():
    """By the bytes that torch has allocated at most, as its profiler counts them."""
    x = normal(2400, 3000, seed=6)
    one = gram.Gram(x @ x.mT / 3000, lent=True)
    with torch.profiler.profile(profile_memory=True) as profile:
        gram.factor(one, Limits())
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    at_a_time = accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns()))
    assert 0 < max(at_a_time) < 8 * 600 * 2400


# The parts of the iteration: the basis of the space that it searches, and the bounds on the errors of its values


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

"""Gram matrices, by blocks and by a factor that lies where they lie: right to the residual stated, or left to others.

The matrix that is factored in its own memory is afterwards as it was.
"""

from itertools import accumulate

import numpy as np
import pytest
import torch

from gnlib import condition_number
from gnlib.eigen import gram, in_place
from gnlib.eigen.in_place import InPlaceFactor
from gnlib.eigen.result import Limits
from tests.gnlib.eigen.helpers import EPS, SIZE, assert_right, ends, eye, spectrum_of
from tests.oracles import normal, with_spectrum

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
    monkeypatch.setattr(in_place, "PANEL", 7)


def test_a_triangle_holds_the_factor_and_the_rest_the_matrix(narrow):
    matrix = with_spectrum(np.geomspace(1e-4, 1, 40), seed=1)
    before, x = matrix.clone(), normal(40, 3, seed=2)
    with InPlaceFactor(matrix) as factor:
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
    with pytest.raises(torch.linalg.LinAlgError, match="not positive definite"), InPlaceFactor(matrix):
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

    class Watched(InPlaceFactor):
        def __init__(self, given):
            assert given.data_ptr() != matrix.data_ptr() and torch.equal(given, matrix)
            super().__init__(given)

    monkeypatch.setattr(gram, "DENSE_UP_TO", 20)
    monkeypatch.setattr(in_place, "InPlaceFactor", Watched)
    assert condition_number(matrix).method.startswith("Cholesky factor")


def test_all_eigenvalues_take_a_copy_and_are_left_out_where_it_does_not_fit():
    matrix = eye(30)
    for spare, fits in ((8 * 30**2, True), (8 * 30**2 - 1, False)):
        assert (gram.dense(gram.Gram(matrix, spare=spare), Limits()) is not None) == fits


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

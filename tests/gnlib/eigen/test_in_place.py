"""Both ends of a matrix that is factored where it lies: right, within its own memory, and the matrix as it was."""

from itertools import accumulate

import numpy as np
import pytest
import torch

from gnlib import condition_number
from gnlib.eigen import gram, in_place
from gnlib.eigen.in_place import InPlaceFactor
from gnlib.eigen.result import Limits
from tests.gnlib.eigen.helpers import SIZE, assert_right, ends, spectrum_of
from tests.oracles import normal, with_spectrum


@pytest.fixture
def narrow(monkeypatch):
    """Several panels, the last one not full, of a small matrix."""
    monkeypatch.setattr(in_place, "PANEL", 7)


def factored(matrix):
    return gram.factor(gram.Gram(matrix, lent=True), Limits())


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
    assert factored(matrix) is None and torch.equal(matrix, before)


@ends
@pytest.mark.parametrize("least", [1e-6, 1e-10])
def test_ends_of_a_prescribed_spectrum_that_has_clusters(lower, upper, least):
    values = spectrum_of(lower, upper, least=least)
    matrix = with_spectrum(values, seed=2)
    before = matrix.clone()
    result = factored(matrix)
    assert_right(result, values[-1], values[0], SIZE)
    assert result.resolved and result.method.startswith("Cholesky factor")
    assert torch.equal(matrix, before)


@pytest.mark.parametrize("lowest", [0.0, 1e-18, -1e-3])
def test_what_is_singular_is_left_to_all_eigenvalues_with_the_same_words(lowest, monkeypatch):
    values = np.linspace(1, 2, 300)
    values[0] = lowest
    matrix = with_spectrum(values, seed=7)
    assert factored(matrix) is None
    for small in (1000, 100):
        monkeypatch.setattr(gram, "DENSE_UP_TO", small)
        if lowest < -1e-6:
            with pytest.raises(ValueError, match=r"^The matrix has the negative eigenvalue -1.0e-03; a Gauss-Newton"):
                condition_number(matrix)
        else:
            result = condition_number(matrix)
            assert result.method == "dense eigenvalues, relative threshold" and result.rank == 299


def test_all_eigenvalues_take_a_copy_and_are_left_out_where_it_does_not_fit():
    matrix = with_spectrum(np.linspace(1, 2, 30), seed=4)
    for spare, fits in ((8 * 30**2, True), (8 * 30**2 - 1, False)):
        assert (gram.dense(gram.Gram(matrix, spare=spare), Limits()) is not None) == fits


def test_a_matrix_that_is_not_lent_is_never_written_to(monkeypatch):
    monkeypatch.setattr(gram, "DENSE_UP_TO", 20)
    monkeypatch.setattr(in_place, "InPlaceFactor", Watched)
    matrix = with_spectrum(np.linspace(1, 2, 30), seed=4)
    Watched.own = matrix
    assert condition_number(matrix).method.startswith("Cholesky factor")


class Watched(InPlaceFactor):
    def __init__(self, matrix):
        assert matrix.data_ptr() != self.own.data_ptr() and torch.equal(matrix, self.own)
        super().__init__(matrix)


def bytes_at_the_peak(work):
    """The bytes that torch has allocated at most, beyond those before, as its profiler counts them."""
    with torch.profiler.profile(profile_memory=True) as profile:
        work()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    return max(accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())))


@pytest.mark.slow
def test_it_takes_a_quarter_of_a_matrix_besides_and_less_of_a_larger_one():
    x = normal(2400, 3000, seed=6)
    one = gram.Gram(x @ x.mT / 3000, lent=True)
    assert 0 < bytes_at_the_peak(lambda: gram.factor(one, Limits())) < 8 * 600 * 2400

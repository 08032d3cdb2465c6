"""Gram matrices: both ends without the rest, right to the residual stated, or left to all eigenvalues."""

import numpy as np
import pytest
import torch

from gnlib import condition_number
from gnlib.eigen import gram
from gnlib.eigen.result import Limits
from tests.gnlib.eigen.helpers import EPS, SIZE, assert_right, ends, spectrum_of
from tests.oracles import normal, with_spectrum

OUTPUTS = [1, 2, 5, 10]


def by_output(*blocks):
    """The matrix with one of these blocks an output, in the order of samples."""
    k, n = len(blocks), len(blocks[0])
    order = torch.arange(n * k).reshape(k, n).T.flatten()
    return torch.block_diag(*blocks)[order][:, order]


def with_eigenvector(matrix, vector, value):
    """Move one direction of a positive definite matrix down to the eigenvalue `value` or close to it, by rank one."""
    vector = vector / vector.norm()
    image = matrix @ vector
    matrix = matrix - (1 - value / (vector @ image)) * torch.outer(image, image) / (vector @ image)
    return (matrix + matrix.T) / 2


def gram_or_none(matrix, outputs):
    return gram.iteration(gram.Gram(matrix, outputs), Limits())


def assert_gram(matrix, outputs, *, found):
    """The result of the iteration, if it is `found`, is that of all eigenvalues."""
    result = gram_or_none(matrix, outputs)
    values = torch.linalg.eigvalsh(matrix)
    assert (result is not None) or not found
    if result is not None:
        assert_right(result, values[-1], values[0], len(matrix))
        assert result.resolved or values[0] < 1e-10 * values[-1]
        assert result.residual >= EPS * (values[-1] / values[0]).item() * (1 - 1e-3)


@ends
@pytest.mark.parametrize("outputs", [1, 5])
def test_gram_ends_where_outputs_are_coupled_strongly_are_right_or_none(lower, upper, outputs):
    assert_gram(with_spectrum(spectrum_of(lower, upper), seed=2), outputs, found=outputs == 1)


@pytest.mark.parametrize("least", [1e-2, 1e-7, 1e-11])
@pytest.mark.parametrize("outputs", [2, 10])
@pytest.mark.parametrize("coupling", [0.0, 1e-8, 1e-3])
def test_gram_ends_where_outputs_are_coupled_weakly(outputs, coupling, least):
    n = SIZE // outputs
    values = [spectrum_of((2, 1e-10), (3, 0.0), n, least=least, seed=s) for s in range(outputs)]
    matrix = by_output(*(with_spectrum(v, seed=s) for s, v in enumerate(values)))
    noise = normal(SIZE, SIZE, seed=3)
    root = torch.linalg.cholesky(matrix)
    matrix = matrix + coupling * root @ (noise + noise.T) @ root.T / (2 * SIZE) ** 0.5
    assert_gram((matrix + matrix.T) / 2, outputs, found=least == 1e-2)


@pytest.mark.parametrize("outputs", OUTPUTS)
@pytest.mark.parametrize("hidden", ["first", "last"])
def test_gram_ends_hidden_in_the_block_of_one_output(outputs, hidden):
    n = SIZE // outputs
    blocks = [with_spectrum(np.linspace(0.4, 0.9, n), seed=s) for s in range(outputs)]
    one = np.linspace(0.4, 0.9, n)
    one[:2] = 1e-5, 2.0
    blocks[0 if hidden == "first" else -1] = with_spectrum(one, seed=9)
    result = gram_or_none(by_output(*blocks), outputs)
    assert_right(result, 2.0, 1e-5, SIZE)


@pytest.mark.parametrize("value", [1e-6, 1e-2, 50.0])
@pytest.mark.parametrize("outputs", OUTPUTS[1:])
def test_gram_ends_that_no_block_shows(outputs, value):
    """An eigenvector across two outputs whose blocks are all alike and far from the end."""
    n = SIZE // outputs
    matrix = torch.eye(SIZE, dtype=torch.float64)
    across = torch.zeros(n, outputs, dtype=torch.float64)
    across[:, 0] = normal(n, seed=4)
    across[:, 1] = -across[:, 0]
    matrix = with_eigenvector(matrix, across.flatten(), value)
    result = gram_or_none(matrix, outputs)
    assert_right(result, max(1.0, value), min(1.0, value), SIZE)


@pytest.mark.parametrize("outputs", [1, 10])
@pytest.mark.parametrize("lowest", [0.0, 1e-18, -1e-18, -1e-3, -2.0])
def test_gram_ends_leaves_what_is_not_definite_to_others(outputs, lowest):
    values = np.linspace(1, 2, SIZE)
    values[0] = lowest
    matrix = with_spectrum(values, seed=7)
    assert gram_or_none(matrix, outputs) is None
    if lowest < -1e-6:
        with pytest.raises(ValueError, match="negative eigenvalue"):
            condition_number(matrix, outputs=outputs)
    else:
        result = condition_number(matrix, outputs=outputs)
        assert_right(result, 2.0, values[1], SIZE - 1)
        assert result.method.startswith("dense")


@pytest.mark.parametrize("outputs", OUTPUTS)
def test_gram_ends_cut_short_leaves_the_matrix_to_others(outputs):
    matrix = with_spectrum(spectrum_of((10, 1e-3), (10, 1e-3)), seed=8)
    assert gram.iteration(gram.Gram(matrix, outputs), Limits(1e-15, 1)) is None
    assert condition_number(matrix, outputs=outputs, tolerance=1e-15, max_steps=1).resolved

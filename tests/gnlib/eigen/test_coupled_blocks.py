"""Coupled blocks: either end of the matrix from the inverses of its blocks, wherever the guess was."""

import numpy as np
import pytest
import torch

from gnlib import NotConvergedError
from tests.gnlib.eigen.blocks import WholeBlocks, coupled
from tests.gnlib.eigen.helpers import both
from tests.oracles import normal

SPECTRA = [np.linspace(1, 2, 30), np.linspace(1.5, 3, 30), np.linspace(0.9, 1.1, 30)]


def end(blocks, largest, max_steps=100):
    norm = 0.0 if largest else torch.linalg.eigvalsh(blocks.matrix)[-1].item()
    return blocks.end(largest=largest, norm=norm, tolerance=1e-8, max_steps=max_steps)


@both
@pytest.mark.parametrize("coupling", [0.0, 1e-3, 0.1])
def test_either_end_is_that_of_the_matrix(largest, coupling):
    matrix = coupled(SPECTRA, coupling)
    pair = end(WholeBlocks(matrix, 3), largest)
    values = torch.linalg.eigvalsh(matrix)
    assert pair.error <= 1e-8
    assert pair.value == pytest.approx(values[-1 if largest else 0].item(), rel=1e-8)


@both
def test_an_end_in_a_block_that_the_guess_has_not_seen_is_found(largest):
    """The shift of the guess is beyond the end of that block, which says so when it is factored."""
    hidden = np.linspace(1, 2, 30)
    hidden[0 if not largest else -1] = 10.0 if largest else 0.01
    blocks = WholeBlocks(coupled([SPECTRA[0], hidden]), 2)
    blocks.outermost = set()
    first = blocks.block(0)
    values, vectors = torch.linalg.eigh(first)
    blocks.guess = lambda *, largest: (
        values[-1 if largest else 0].item(),
        torch.cat([vectors[:, -4:] if largest else vectors[:, :4], torch.zeros(30, 4).double()]),
    )
    assert end(blocks, largest).value == pytest.approx(10.0 if largest else 0.01, rel=1e-8)


def test_the_smallest_eigenvalue_is_the_smallest_that_is_not_zero():
    null = torch.linalg.qr(normal(60, 2, seed=3)).Q
    outside = torch.eye(60, dtype=torch.float64) - null @ null.T
    matrix = outside @ coupled(SPECTRA[:2], 1e-2) @ outside
    matrix = (matrix + matrix.T) / 2
    pair = end(WholeBlocks(matrix, 2, null), largest=False)
    assert pair.value == pytest.approx(torch.linalg.eigvalsh(matrix)[2].item(), rel=1e-8)
    assert (null.T @ pair.vectors[:, 0]).abs().max() < 1e-8


def test_null_vectors_are_raised_by_the_norm():
    null = torch.eye(60, dtype=torch.float64)[:, :1]
    blocks = WholeBlocks(coupled(SPECTRA[:2]), 2, null)
    x = normal(60, 2, seed=4)
    torch.testing.assert_close(blocks.raised(x, 5.0), blocks.matrix @ x + 5 * null @ (null.T @ x))
    assert torch.equal(blocks.raised(x, 0.0), blocks.matrix @ x)


def test_a_block_that_is_not_definite_is_told():
    matrix = coupled(SPECTRA[:2])
    matrix[35, 35] = -1e3
    with pytest.raises(torch.linalg.LinAlgError, match="not positive definite"):
        WholeBlocks(matrix, 2).end(largest=False, norm=3.0, tolerance=1e-8, max_steps=100)


@both
def test_an_end_cut_short_raises(largest):
    with pytest.raises(NotConvergedError, match="after 1 steps"):
        end(WholeBlocks(coupled(SPECTRA, 0.3), 3), largest, max_steps=1)


@both
def test_vectors_at_an_end_of_a_block(largest):
    blocks = WholeBlocks(coupled(SPECTRA), 3)
    vectors = blocks.ritz_vectors(1, 2, largest=largest)
    assert vectors.shape == (30, 2)
    values = torch.linalg.eigvalsh(vectors.T @ blocks.block(1) @ vectors)
    wanted = 3.0 if largest else 1.5
    assert values[-1 if largest else 0].item() == pytest.approx(wanted, rel=1e-2)


def test_random_columns_are_the_same_at_each_call():
    blocks = WholeBlocks(coupled(SPECTRA[:1]), 1)
    assert torch.equal(blocks.random(30, 2), blocks.random(30, 2))

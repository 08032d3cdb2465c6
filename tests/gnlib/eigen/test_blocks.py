"""Coupled blocks: either end of the matrix from the inverses of its blocks, and how far these may be shifted."""

import numpy as np
import pytest
import torch

from gnlib.eigen.blocks import (
    CoupledBlocks,
    ShiftedInverse,
    factor_shifted,
    inverse_of,
)
from gnlib.eigen.davidson import eigh_from_end
from gnlib.eigen.result import Limits
from tests.gnlib.eigen.helpers import both
from tests.oracles import normal, with_spectrum


class WholeBlocks(CoupledBlocks):
    """A symmetric matrix with blocks of one size on its diagonal, and a null space if `null` has columns."""

    def __init__(self, matrix, outputs, null=None):
        self.matrix = matrix
        self.null = matrix.new_empty(len(matrix), 0) if null is None else null
        self.outputs, self.inputs = outputs, len(matrix) // outputs
        self.groups = [range(i, i + 1) for i in range(outputs)]
        self.outermost = set(range(outputs))

    def apply(self, x):
        return self.matrix @ x

    def block(self, i):
        part = slice(i * self.inputs, (i + 1) * self.inputs)
        return self.matrix[part, part] + (self.null @ self.null.T)[part, part]

    def split(self, x):
        return x.reshape(self.outputs, self.inputs, -1)

    def join(self, x):
        return x.reshape(len(self.matrix), -1)

    def project(self, x):
        return x - self.null @ (self.null.T @ x)

    def guess(self, *, largest):
        start = torch.linalg.qr(self.project(normal(len(self.matrix), self.columns, seed=0))).Q
        values, vectors = eigh_from_end(start.T @ self.apply(start), largest=largest)
        return values[0].item(), start @ vectors


def coupled(spectra, coupling=0.0, *, seed=1):
    """Blocks of these eigenvalues, coupled by noise in proportion to them."""
    matrix = torch.block_diag(*(with_spectrum(values, seed=seed + i) for i, values in enumerate(spectra)))
    noise, root = normal(*matrix.shape, seed=seed + 9), torch.linalg.cholesky(matrix)
    matrix = matrix + coupling * root @ (noise + noise.T) @ root.T / len(matrix) ** 0.5
    return (matrix + matrix.T) / 2


SPECTRA = [np.linspace(1, 2, 30), np.linspace(1.5, 3, 30), np.linspace(0.9, 1.1, 30)]


def end(blocks, largest, max_steps=100):
    norm = 0.0 if largest else torch.linalg.eigvalsh(blocks.matrix)[-1].item()
    return blocks.find_end(largest=largest, norm=norm, limits=Limits(max_steps=max_steps))


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


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
    values, vectors = eigh_from_end(blocks.block(0), largest=largest)
    blocks.guess = lambda *, largest: (values[0].item(), torch.cat([vectors[:, :4], torch.zeros(30, 4).double()]))
    assert end(blocks, largest).value == pytest.approx(10.0 if largest else 0.01, rel=1e-8)


def test_the_smallest_eigenvalue_is_the_smallest_that_is_not_zero():
    null = torch.linalg.qr(normal(60, 2, seed=3)).Q
    outside = torch.eye(60, dtype=torch.float64) - null @ null.T
    matrix = outside @ coupled(SPECTRA[:2], 1e-2) @ outside
    matrix = (matrix + matrix.T) / 2
    pair = end(WholeBlocks(matrix, 2, null), largest=False)
    assert pair.value == pytest.approx(torch.linalg.eigvalsh(matrix)[2].item(), rel=1e-8)
    assert (null.T @ pair.vectors[:, 0]).abs().max() < 1e-8


def test_a_block_that_is_not_definite_is_told():
    matrix = coupled(SPECTRA[:2])
    matrix[35, 35] = -1e3
    with pytest.raises(torch.linalg.LinAlgError, match="not positive definite"):
        WholeBlocks(matrix, 2).find_end(largest=False, norm=3.0, limits=Limits())


# Inverses

VALUES = np.linspace(1, 4, 7)
MATRIX = with_spectrum(VALUES, seed=1)
BLOCKS = WholeBlocks(coupled([VALUES, VALUES + 1, VALUES + 2]), 3)
signs = pytest.mark.parametrize("sign", [1, -1])


def test_the_inverse_of_a_definite_matrix_and_of_no_other():
    x = normal(7, 2, seed=3)
    close(MATRIX @ inverse_of(MATRIX)(x), x)
    with pytest.raises(torch.linalg.LinAlgError):
        inverse_of(-MATRIX)


@signs
def test_a_shifted_matrix_has_a_factor_up_to_the_end_and_none_beyond(sign):
    end, out = (1.0 if sign > 0 else 4.0), torch.empty(7, 7, dtype=torch.float64).mT
    before = MATRIX.clone()
    assert factor_shifted(MATRIX, end - sign * 1e-6, sign, out=out)
    close(out.tril() @ out.tril().T, sign * (MATRIX - (end - sign * 1e-6) * torch.eye(7).double()))
    assert not factor_shifted(MATRIX, end + sign * 1e-6, sign, out=out)
    assert torch.equal(MATRIX, before)


def shifted(shift, sign=1, blocks=BLOCKS):
    inverse = ShiftedInverse(blocks, sign)
    assert inverse.factor(shift) is None
    return inverse


@signs
def test_the_product_is_that_with_the_inverse_of_the_shifted_blocks(sign):
    shift, x = (0.9 if sign > 0 else 6.1), normal(21, 3, seed=4)
    close(sign * (BLOCKS.matrix - shift * torch.eye(21).double()) @ shifted(shift, sign)(x), x)


@signs
def test_a_shift_beyond_a_block_names_it_and_leaves_everything_as_it_was(sign):
    near, far, indefinite = (0.5, 1.5, 0) if sign > 0 else (6.5, 5.5, 2)
    inverse = shifted(near, sign)
    before = inverse.factors.clone()
    assert inverse.factor(far) == indefinite
    assert inverse.shift == near
    assert torch.equal(inverse.factors, before)

"""A matrix that is nearly block diagonal, given whole: what the tests of coupled blocks and their inverses are on."""

import torch

from gnlib.eigen.coupled_blocks import CoupledBlocks
from tests.oracles import normal, with_spectrum


class WholeBlocks(CoupledBlocks):
    """A symmetric matrix with blocks of one size on its diagonal, and a null space if `null` has columns."""

    def __init__(self, matrix, outputs, null=None):
        self.matrix = self.like = matrix
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
        start = self.project(normal(len(self.matrix), self.columns, seed=0))
        start = torch.linalg.qr(start).Q
        values, vectors = torch.linalg.eigh(start.T @ self.apply(start))
        order = slice(None, None, -1) if largest else slice(None)
        values, vectors = values.tolist()[order], vectors[:, list(range(len(values)))[order]]
        return values[0], start @ vectors


def coupled(spectra, coupling=0.0, *, seed=1):
    """Blocks of these eigenvalues, coupled by noise in proportion to them."""
    matrix = torch.block_diag(*(with_spectrum(values, seed=seed + i) for i, values in enumerate(spectra)))
    noise, root = normal(*matrix.shape, seed=seed + 9), torch.linalg.cholesky(matrix)
    matrix = matrix + coupling * root @ (noise + noise.T) @ root.T / len(matrix) ** 0.5
    return (matrix + matrix.T) / 2

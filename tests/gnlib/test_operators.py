"""Kronecker sums know their products."""

import numpy as np
import pytest
import scipy
import torch

from gnlib.operators import KroneckerSum, apply_kronecker_sum
from tests.oracles import normal, orthogonal

SHAPES = [(1, 3, 4, 4), (3, 2, 5, 3), (2, 1, 4, 2), (4, 3, 1, 1), (6, 1, 1, 1)]  # L, k, d, r
shapes = pytest.mark.parametrize("terms, k, d, r", SHAPES)


def kronecker_sum(terms, k, d, r):
    """Random factors; not symmetric, so that a transpose in the wrong place shows."""
    left, right = normal(terms, k, k, seed=1), normal(terms, r, r, seed=2)
    return KroneckerSum(left, right, orthogonal(d, r, seed=3))


def matrix(op):
    return sum(torch.kron(c, (op.basis @ s @ op.basis.T).contiguous()) for c, s in zip(op.left, op.right, strict=True))


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-13, atol=1e-13)


@shapes
def test_dense_and_products_are_those_of_the_sum_of_kronecker_products(terms, k, d, r):
    op, x = kronecker_sum(terms, k, d, r), normal(4, k, r, seed=5)
    close(op.dense(), matrix(op))
    symmetric = KroneckerSum(op.left + op.left.mT, op.right + op.right.mT, op.basis)
    for columns in ((), (1,), (5,)):
        v = normal(k * d, *columns, seed=4)
        close(symmetric.matmul(v), matrix(symmetric) @ v)
    expected = torch.stack([sum(c @ m @ s for c, s in zip(op.left, symmetric.right, strict=True)) for m in x])
    close(apply_kronecker_sum(op.left, symmetric.right, x), expected)  # right factors have to be symmetric
    close(apply_kronecker_sum(op.left, symmetric.right, x[:1]), expected[:1])


def test_scipy_sees_the_same_operator():
    op = kronecker_sum(2, 3, 5, 4)
    assert repr(op) == "KroneckerSum(shape=(15, 15), dtype=torch.float64, device=cpu)"
    op = KroneckerSum(op.left + op.left.mT, op.right + op.right.mT, op.basis)
    there, v = op.to_scipy(), normal(15, 2, seed=4)
    assert isinstance(there, scipy.sparse.linalg.LinearOperator)
    assert (there.shape, there.dtype) == ((15, 15), np.float64)
    for vector in (v, v[:, 0]):
        np.testing.assert_allclose(there @ vector.numpy(), (op @ vector).numpy(), rtol=1e-14)
    largest = torch.linalg.eigvalsh(op.dense())[-1].item()
    assert scipy.sparse.linalg.eigsh(there, 1, which="LA", return_eigenvectors=False).item() == pytest.approx(largest)
    for rows in (14, 16, 1):
        with pytest.raises(ValueError, match=rf"The vector has {rows} rows; .* \(15, 15\) takes 15"):
            op @ torch.ones(rows, 2, dtype=torch.float64)

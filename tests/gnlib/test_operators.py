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
def test_dense_is_the_sum_of_kronecker_products(terms, k, d, r):
    op = kronecker_sum(terms, k, d, r)
    close(op.dense(), matrix(op))


@shapes
@pytest.mark.parametrize("columns", [(), (1,), (5,)])
def test_matmul_is_the_product_with_the_dense_matrix(terms, k, d, r, columns):
    op = kronecker_sum(terms, k, d, r)
    symmetric = KroneckerSum(op.left + op.left.mT, op.right + op.right.mT, op.basis)
    v = normal(k * d, *columns, seed=4)
    close(symmetric.matmul(v), matrix(symmetric) @ v)
    close(symmetric @ v, matrix(symmetric) @ v)


@shapes
@pytest.mark.parametrize("batch", [1, 4])
def test_apply_multiplies_each_matrix_from_both_sides(terms, k, d, r, batch):
    op, x = kronecker_sum(terms, k, d, r), normal(batch, k, r, seed=5)
    right = op.right + op.right.mT  # the factors on that side have to be symmetric
    expected = torch.stack([sum(c @ m @ s for c, s in zip(op.left, right, strict=True)) for m in x])
    close(apply_kronecker_sum(op.left, right, x), expected)


def test_an_operator_says_what_it_is():
    op = kronecker_sum(2, 3, 5, 4)
    assert op.shape == (15, 15)
    assert op.dtype == torch.float64
    assert op.device == op.left.device
    assert repr(op) == "KroneckerSum(shape=(15, 15), dtype=torch.float64, device=cpu)"


def test_scipy_sees_the_same_operator():
    op = kronecker_sum(2, 3, 5, 4)
    op = KroneckerSum(op.left + op.left.mT, op.right + op.right.mT, op.basis)
    there, v = op.to_scipy(), normal(15, 2, seed=4)
    assert (
        isinstance(there, scipy.sparse.linalg.LinearOperator) and there.shape == (15, 15) and there.dtype == np.float64
    )
    np.testing.assert_allclose(there @ v.numpy(), (op @ v).numpy(), rtol=1e-14)
    np.testing.assert_allclose(there @ v[:, 0].numpy(), (op @ v[:, 0]).numpy(), rtol=1e-14)
    largest = torch.linalg.eigvalsh(op.dense())[-1].item()
    assert scipy.sparse.linalg.eigsh(there, 1, which="LA", return_eigenvectors=False).item() == pytest.approx(largest)


@pytest.mark.bad_input
@pytest.mark.parametrize("rows", [14, 16, 1])
def test_a_vector_of_another_size_is_refused(rows):
    with pytest.raises(ValueError, match=rf"The vector has {rows} rows; .* \(15, 15\) takes 15"):
        kronecker_sum(2, 3, 5, 4) @ torch.ones(rows, 2, dtype=torch.float64)

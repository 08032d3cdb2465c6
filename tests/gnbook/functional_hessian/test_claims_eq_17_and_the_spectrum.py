"""Zhao 2024, appendix F up to Eq. 17: the functional Hessian of one hidden layer and its spectrum."""

import pytest
import torch
from gnbook.functional_hessian.hessian import functional_hessian_eigenvalues, residual_moment
from hypothesis import given
from hypothesis import strategies as st

from tests.gnbook.functional_hessian.helpers import dims, eq_17, hidden_layers, loss_hessian, norm, outer_half, size
from tests.strategies import exact, gaussian, instances, matrices, orthogonal, seeds, squares


def reordered(matrix, v, w, transpose_w, transpose_v=True):
    """Reorder parameters: W first, then V, each by rows, or by columns if transposed."""
    numbers_v = torch.arange(v.numel()).reshape(v.shape)
    numbers_w = v.numel() + torch.arange(w.numel()).reshape(w.shape)
    order = torch.cat([(n.mT if t else n).flatten() for n, t in ((numbers_w, transpose_w), (numbers_v, transpose_v))])
    return matrix[order][:, order]


@pytest.mark.claim("Eq. 17", verdict="holds if")
@instances
@given(hidden_layers())
def test_eq_17_is_the_second_half_if_one_weight_is_read_by_rows_and_one_by_columns(layer):
    weights, x, y = layer
    v, w = weights
    omega = (x @ v.mT @ w.mT - y).mT @ x / len(x)
    second = reordered(loss_hessian(weights, x, y) - outer_half(weights, x), v, w, transpose_w=False)
    assert (second - eq_17(omega, len(v))).abs().max() <= 1e-11 * size(weights, x, y)


@pytest.mark.claim("Eq. 17", verdict="holds if")
def test_eq_17_is_another_matrix_for_other_orders_and_other_factors_of_the_loss():
    v = w = torch.eye(2).double()
    omega, x = exact([[1, 2], [3, 4]]), 2**0.5 * torch.eye(2).double()  # white
    y = x @ (w @ v - omega).mT
    for w_by_columns, v_by_columns, factor, equal in [
        (False, True, 1, True),
        (True, True, 1, False),  # as the paper orders its Jacobian
        (False, False, 1, False),
        (False, True, 2, False),  # no half in the loss
    ]:
        second = loss_hessian([v, w], x, y, factor / 2) - factor * outer_half([v, w], x)
        second = reordered(second, v, w, w_by_columns, v_by_columns)
        assert torch.allclose(second, eq_17(omega, 2), atol=1e-12) is equal
        assert torch.allclose(torch.linalg.eigvalsh(second), factor * torch.linalg.eigvalsh(eq_17(omega, 2)))


@pytest.mark.claim("Appendix F, product with a Kronecker vector", verdict="holds")
@instances
@given(st.data(), dims, dims, dims, seeds)
def test_the_product_with_a_kronecker_vector(data, k, d, m, seed):
    omega = data.draw(matrices(k, d))
    a, b, c, e = (gaussian(seed + i, n) for i, n in enumerate([k, m, d, m]))
    product = eq_17(omega, m) @ torch.cat([torch.kron(a, b), torch.kron(c, e)])
    expected = torch.cat([torch.kron(omega @ c, e), torch.kron(omega.mT @ a, b)])
    assert (product - expected).abs().max() <= 1e-12 * (1 + norm(omega)) * (a.norm() + c.norm()) * (b.norm() + e.norm())


@pytest.mark.claim("Appendix F, eigenvectors", verdict="holds if")
@instances
@given(st.data(), dims, dims, dims, seeds)
def test_paired_singular_vectors_give_eigenvectors_with_any_orthonormal_vectors(data, k, d, m, seed):
    omega = data.draw(matrices(k, d))
    u, s, vt = torch.linalg.svd(omega)
    b, functional = orthogonal(seed, m), eq_17(omega, m)
    found, values = [], []
    for i in range(max(k, d)):
        for column in b.mT:
            pairs = [(1, 1), (1, -1)] if i < min(k, d) else [(1, 0)] if k > d else [(0, 1)]
            for first, second in pairs:
                a = first * u[:, i] if first else torch.zeros(k).double()
                c = second * vt[i] if second else torch.zeros(d).double()
                vector = torch.cat([torch.kron(a, column), torch.kron(c, column)])
                found.append(vector / vector.norm())
                values.append(first * second * s[i].item() if first and second else 0.0)
    found, values = torch.stack(found, 1), exact(values)
    assert found.shape == functional.shape
    assert (found.mT @ found - torch.eye(len(found)).double()).abs().max() <= 1e-12
    assert (functional @ found - found * values).abs().max() <= 1e-12 * (1 + norm(omega))


@pytest.mark.claim("Appendix F, eigenvectors", verdict="holds if")
def test_eigenvectors_of_the_two_products_that_are_not_a_pair_give_none():
    omega, a, c = torch.eye(2).double(), exact([1, 0]), exact([0, 1])
    assert torch.equal(omega @ omega.mT @ a, a) and torch.equal(omega.mT @ omega @ c, c)
    vector = torch.cat([a, c])
    product = eq_17(omega, 1) @ vector
    assert torch.linalg.matrix_rank(torch.stack([product, vector])) == 2


@pytest.mark.claim("Appendix F, eigenvalues", verdict="holds if")
@instances
@given(st.data(), dims, dims, st.integers(1, 5))
def test_the_non_zero_eigenvalues_are_singular_values_with_both_signs(data, k, d, m):
    omega = data.draw(matrices(k, d))
    roots = squares(omega.mT, d).sqrt()
    signed = torch.cat([roots, -roots]).repeat(m)
    values = torch.linalg.eigvalsh(eq_17(omega, m))
    cut = 1e-10 * (1e-300 + norm(omega))
    found, expected = (v[v.abs() > cut].sort().values for v in (values, signed))
    assert found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-9)
    assert len(values) == m * (k + d)  # which is not the number of signed roots, 2 m d, unless k = d
    assert (len(signed) == len(values)) is (k == d)


@pytest.mark.claim("Spectrum of the functional Hessian", verdict="holds")
@instances
@given(hidden_layers())
def test_the_whole_spectrum_with_its_zeros(layer):
    weights, x, y = layer
    second = loss_hessian(weights, x, y) - outer_half(weights, x)
    values = functional_hessian_eigenvalues(residual_moment(weights, x, y), len(weights[0]))
    assert len(values) == len(second)
    assert (torch.linalg.eigvalsh(second).flip(0) - values).abs().max() <= 1e-11 * size(weights, x, y)

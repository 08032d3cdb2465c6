"""The matrix with the data on one side has the eigenvalues of Eq. 5, and one triangle of it those of another matrix."""

import torch
from gnbook.one_hidden_layer.published import one_sided, read_by_one_triangle, two_layers_by_one_triangle

from gnlib.linear.gauss_newton import linear_gauss_newton
from tests.oracles import normal, spectrum

WEIGHTS = [normal(7, 5, seed=0), normal(6, 7, seed=1), normal(3, 6, seed=2)]
X = normal(20, 5, seed=3)
MOMENT = X.T @ X / len(X)


def test_the_eigenvalues_are_those_of_the_symmetric_matrix():
    found = torch.linalg.eigvals(one_sided(WEIGHTS, MOMENT))
    assert found.imag.abs().max() < 1e-10
    expected = spectrum(linear_gauss_newton(WEIGHTS, MOMENT).dense())
    assert torch.allclose(found.real.sort(descending=True).values, expected, rtol=1e-8)


def test_one_triangle_has_them_for_white_data_and_not_for_others():
    for moment, same in ((torch.eye(5, dtype=torch.float64), True), (MOMENT, False)):
        read = read_by_one_triangle(one_sided(WEIGHTS, moment))
        expected = spectrum(linear_gauss_newton(WEIGHTS, moment).dense())
        assert torch.allclose(read, expected, rtol=1e-8) == same


def test_one_hidden_layer_is_read_block_by_block():
    weights = [WEIGHTS[0], normal(3, 7, seed=4)]
    expected = read_by_one_triangle(one_sided(weights, MOMENT))
    assert torch.allclose(two_layers_by_one_triangle(weights, MOMENT), expected, rtol=1e-8)

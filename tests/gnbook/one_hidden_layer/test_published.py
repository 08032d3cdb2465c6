"""The matrix of the public code, of which one triangle has other eigenvalues."""

import torch
from gnbook.one_hidden_layer.bounds import one_sided, read_by_one_triangle, two_layers_by_one_triangle

from gnlib.linear.gauss_newton import linear_gauss_newton
from tests.oracles import identity, network, normal, spectrum


def test_the_eigenvalues_are_those_of_the_symmetric_matrix_and_one_triangle_has_them_for_white_data_alone():
    weights, x = network((5, 7, 6, 3), seed=0), normal(20, 5, seed=3)
    for moment, white in ((identity(5), True), (x.T @ x / len(x), False)):
        matrix, expected = one_sided(weights, moment), spectrum(linear_gauss_newton(weights, moment).dense())
        found = torch.linalg.eigvals(matrix)
        assert found.imag.abs().max() < 1e-10
        torch.testing.assert_close(found.real.sort(descending=True).values, expected, rtol=1e-8, atol=1e-8)
        assert torch.allclose(read_by_one_triangle(matrix), expected, rtol=1e-8) == white
    small = [weights[0], normal(3, 7, seed=4)]  # one hidden layer, block by block
    expected = read_by_one_triangle(one_sided(small, moment))
    torch.testing.assert_close(two_layers_by_one_triangle(small, moment), expected, rtol=1e-8, atol=1e-8)

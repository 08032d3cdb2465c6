"""Bounds at initialisation, and the matrix of the public code, of which one triangle has other eigenvalues."""

import math

import pytest
import torch
from gnbook.one_hidden_layer.bounds import asymptotic_bound, zhao_lemma_7
from gnbook.one_hidden_layer.published import one_sided, read_by_one_triangle, two_layers_by_one_triangle

from gnlib.linear.gauss_newton import linear_gauss_newton
from tests.oracles import normal, spectrum


@pytest.mark.parametrize("t", [0.0, 0.5])
@pytest.mark.parametrize("d, m, k", [(4, 100, 9), (100, 36, 1), (9, 25, 16), (9, 4, 9)])
def test_lemma_7_is_its_formula_with_negative_differences_cut_at_zero(d, m, k, t):
    largest = 0.5 * (m**0.5 + k**0.5 + t) ** 2 + 0.25 * (m**0.5 + d**0.5 + t) ** 2
    smallest = 0.5 * max(m**0.5 - k**0.5 - t, 0) ** 2 + 0.25 * max(m**0.5 - d**0.5 - t, 0) ** 2
    bound = zhao_lemma_7(d, m, k, t, variance_v=0.25, variance_w=0.5, data=3.0)
    assert bound == pytest.approx(3 * largest / smallest if smallest else math.inf)
    if t == 0:
        assert asymptotic_bound(d, m, k, variance_v=0.25, variance_w=0.5, data=3.0) == bound


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

"""The whole, against dense matrices: both ends and the rank of random linear networks."""

import numpy as np
import pytest
import torch

from gnlib import SecondMoment, condition_number, linear_gauss_newton, second_moment, whiten
from tests.gnlib.eigen.helpers import assert_ends
from tests.oracles import autograd_jacobian, kronecker_formula, network, normal, samples, spectrum


def random_case(seed):
    """A linear network of 1 to 6 layers and its data: every second small, every third white."""
    random = np.random.default_rng(seed)
    small, white, deficient = seed % 2 == 0, seed % 3 == 0, seed % 5 < 2
    d, k = random.integers(1, 7, 2) if small else (random.integers(24, 45), random.integers(10, 18))
    hidden = random.integers(1, 9, seed % 6) if small else random.integers(8, 80, seed % 6)
    n = int(random.integers(1, 2 * d + 1) if small else random.integers(2 * d, 4 * d))
    x = samples(n, int(d), rank=int(min(n, d) + 1) // 2 if deficient else None, seed=seed)
    weights = network([int(d), *map(int, hidden), int(k)], seed=seed)
    return weights, whiten(x) if white else x


def rank_in_theory(weights, x):
    """q (k + r - q), with r the rank of the data and q that of the narrowest layer."""
    k, r = weights[-1].shape[0], int(torch.linalg.matrix_rank(x))
    q = min(r, *(w.shape[0] for w in weights))
    return q * (k + r - q)


@pytest.mark.parametrize("seed", range(60))
def test_both_ends_and_the_rank_of_60_linear_networks_agree_with_dense_eigenvalues(seed):
    weights, x = random_case(seed)
    values, rank = spectrum(kronecker_formula(weights, x)), rank_in_theory(weights, x)
    assert values[rank - 1] > 1e-7 * values[0]  # or else the dense eigenvalues are not right to 1e-8
    assert (values[rank:].abs() < 1e-13 * values[0]).all()
    result = condition_number(linear_gauss_newton(weights, SecondMoment.from_data(x)))
    assert_ends(result, values, rank)
    assert result.residual <= 2e-8
    assert result.resolved


@pytest.mark.parametrize("seed", range(0, 60, 2))
def test_both_ends_and_the_rank_of_30_small_networks_agree_with_autograd(seed):
    weights, x = random_case(seed)
    jacobian = autograd_jacobian(weights, x)
    values = spectrum(jacobian.T @ jacobian / len(x))
    rank = int(torch.linalg.matrix_rank(jacobian))
    assert_ends(condition_number(linear_gauss_newton(weights, second_moment(x))), values, rank)


@pytest.mark.parametrize("skip", [0.3, 1.0])
@pytest.mark.parametrize("widths", [(6, 6, 6), (5, 8, 3, 6), (4, 4, 4, 4, 4)])
def test_both_ends_agree_with_autograd_where_layers_have_skips(widths, skip):
    weights, x = network(widths, seed=1), normal(9, widths[0], seed=2)
    jacobian = autograd_jacobian(weights, x, skip)
    values = spectrum(jacobian @ jacobian.T / len(x))
    result = condition_number(linear_gauss_newton(weights, second_moment(x), skip))
    assert_ends(result, values, int(torch.linalg.matrix_rank(jacobian)))

"""The tangent kernel of infinitely wide networks, and what bounds it."""

import math

import pytest
import torch
from gnbook.deep_nonlinear.duals import leaky_relu, smooth
from gnbook.deep_nonlinear.wide_limit import (
    correlation_bound,
    correlations,
    deep_relu_condition,
    off_diagonal_condition,
    standard_factors,
    wide_kernel,
)

from gnlib import GaussNewton
from tests.devices import assert_made_where_its_arguments_are
from tests.gnbook.deep_nonlinear.wide_helpers import (
    KAIMING,
    NETWORKS,
    finite_kernel,
    finite_weights,
    jacobian_kernel,
    on_a_sphere,
)
from tests.strategies import exact, gaussian

RELU = leaky_relu(0.0)
X = gaussian(0, 5, 4)


@pytest.mark.parametrize("branch", [None, 0.5])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_oracle_is_the_kernel_of_the_network(name, branch):
    activation, _, gain = NETWORKS[name]
    weights = finite_weights([4, 7, 7, 1], gain, 0)
    assert torch.allclose(
        finite_kernel(weights, X, activation, branch), jacobian_kernel(weights, X, activation, branch)
    )


def test_the_kernel_is_that_of_the_core():
    weights = finite_weights([4, 7, 6, 2], KAIMING, 0)
    layers = [torch.nn.Linear(*w.shape[::-1], bias=False, dtype=torch.float64) for w in weights]
    for layer, w in zip(layers, weights, strict=True):
        layer.weight.data = w
    first, second, last = layers
    module = torch.nn.Sequential(first, torch.nn.ReLU(), second, torch.nn.ReLU(), last)
    assert torch.allclose(GaussNewton(module, X).tangent_kernel(), jacobian_kernel(weights, X, torch.relu), rtol=1e-10)


def test_a_network_of_one_layer_has_the_gram_matrix():
    assert torch.allclose(wide_kernel(X, RELU, [2.0], gain=3.0), 2 * 9 / 4 * X @ X.mT)


def test_a_linear_network_repeats_the_gram_matrix():
    kernel = wide_kernel(X, leaky_relu(1.0), [1.0] * 6, gain=1.0)
    assert torch.allclose(kernel, 6 / 4 * X @ X.mT)


def test_layers_add_up():
    whole = wide_kernel(X, RELU, [1.0, 2.0, 3.0], gain=KAIMING)
    parts = [wide_kernel(X, RELU, factors, gain=KAIMING) for factors in ([1.0, 0, 0], [0, 2.0, 0], [0, 0, 3.0])]
    assert torch.allclose(sum(parts), whole)


def test_scaling_all_weights_of_relus_does_not_move_the_condition():
    kernels = [wide_kernel(X, RELU, [1.0] * 4, gain=gain) for gain in (0.5, 2.0)]
    assert torch.allclose(kernels[1], 4.0**8 * kernels[0])


def test_the_standard_factors_are_columns_over_the_squared_gain():
    assert standard_factors([4, 9, 2], 3.0) == [4 / 9, 1.0]


def test_correlations_see_no_norms():
    found = correlations(exact([[1.0, 0.0], [0.0, 2.0], [-3.0, 4.0]]))
    assert torch.allclose(found, exact([[0.0, 0.0, 0.6], [0.0, 0.0, 0.8], [0.6, 0.8, 0.0]]))


def test_odds_fall_geometrically():
    r = correlation_bound(exact([0.9, 1.0, 0.0]), 0.5, 10)
    assert (r[0] / (1 - r[0])).item() == pytest.approx(9 / 1.5**10)
    assert r[1] == 1 and r[2] == 0


def test_off_diagonals_of_norm_one_bound_nothing():
    ones = 1 - torch.eye(5).double()
    assert off_diagonal_condition(0 * ones) == 1 and off_diagonal_condition(0.26 * ones) == math.inf
    assert off_diagonal_condition(0.125 * ones) == pytest.approx(3.0)


@pytest.mark.parametrize("branch", [None, 0.5])
@pytest.mark.parametrize("dual", [RELU, smooth(torch.tanh)])
def test_kernels_stay_on_their_device(dual, branch):
    assert_made_where_its_arguments_are((lambda x: wide_kernel(x, dual, [1.0] * 4, gain=1.0, branch=branch), X))
    assert_made_where_its_arguments_are((deep_relu_condition, exact([1.0, 2.0])))
    start = correlations(on_a_sphere(4, 3))
    assert_made_where_its_arguments_are((correlations, on_a_sphere(4, 3)))
    assert_made_where_its_arguments_are((correlation_bound, start, 0.5, 3))
    assert_made_where_its_arguments_are((off_diagonal_condition, 0.1 * start))


@pytest.mark.bad_input
def test_what_has_no_limit():
    with pytest.raises(ValueError, match="one number from 0 on for each weight matrix"):
        wide_kernel(X, RELU, [], gain=1.0)
    with pytest.raises(ValueError, match="one number from 0 on"):
        wide_kernel(X, RELU, [1.0, -1.0], gain=1.0)
    with pytest.raises(ValueError, match="finite numbers"):
        wide_kernel(X, RELU, [1.0, 1.0], gain=math.inf)
    with pytest.raises(ValueError, match="Sample 2 has variance zero"):
        wide_kernel(X * exact([1, 1, 0, 1, 1])[:, None], RELU, [1.0, 1.0], gain=1.0)
    with pytest.raises(ValueError, match="at least two integers"):
        standard_factors([3], 1.0)


@pytest.mark.bad_input
def test_what_is_no_norm_or_correlation():
    with pytest.raises(ValueError, match="norms are positive"):
        deep_relu_condition(exact([1.0, 0.0]))
    with pytest.raises(ValueError, match="Sample 0 is zero"):
        correlations(0 * X)
    with pytest.raises(ValueError, match="not from 0 to 1"):
        correlation_bound(exact([1.5]), 0.5, 1)
    with pytest.raises(ValueError, match="not from 0 to 1"):
        correlation_bound(exact([0.5]), 1.5, 1)
    with pytest.raises(ValueError, match="a negative entry"):
        off_diagonal_condition(-X @ X.T)

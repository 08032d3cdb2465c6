"""The tangent kernel of infinitely wide networks, and bounds on it."""

import math

import pytest
import torch
from gnbook.deep_nonlinear.duals import leaky_relu, smooth
from gnbook.deep_nonlinear.wide_limit import correlations, deep_relu_condition, standard_factors, wide_kernel

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


def test_layers_add_up_and_linear_ones_repeat_the_gram_matrix():
    parts = [wide_kernel(X, RELU, factors, gain=KAIMING) for factors in ([1.0, 0, 0], [0, 2.0, 0], [0, 0, 3.0])]
    assert torch.allclose(sum(parts), wide_kernel(X, RELU, [1.0, 2.0, 3.0], gain=KAIMING))
    assert torch.allclose(wide_kernel(X, RELU, [2.0], gain=3.0), 2 * 9 / 4 * X @ X.mT)
    assert torch.allclose(wide_kernel(X, leaky_relu(1.0), [1.0] * 6, gain=1.0), 6 / 4 * X @ X.mT)
    scaled = [wide_kernel(X, RELU, [1.0] * 4, gain=gain) for gain in (0.5, 2.0)]
    assert torch.allclose(scaled[1], 4.0**8 * scaled[0])
    assert standard_factors([4, 9, 2], 3.0) == [4 / 9, 1.0]


def test_correlations_see_no_norms():
    found = correlations(exact([[1.0, 0.0], [0.0, 2.0], [-3.0, 4.0]]))
    assert torch.allclose(found, exact([[0.0, 0.0, 0.6], [0.0, 0.0, 0.8], [0.6, 0.8, 0.0]]))


@pytest.mark.parametrize("branch", [None, 0.5])
@pytest.mark.parametrize("dual", [RELU, smooth(torch.tanh)])
def test_kernels_stay_on_their_device(dual, branch):
    assert_made_where_its_arguments_are((lambda x: wide_kernel(x, dual, [1.0] * 4, gain=1.0, branch=branch), X))
    assert_made_where_its_arguments_are((deep_relu_condition, exact([1.0, 2.0])))
    assert_made_where_its_arguments_are((correlations, on_a_sphere(4, 3)))


REFUSED = [
    (lambda: wide_kernel(X, RELU, [], gain=1.0), "one number from 0 on for each weight matrix"),
    (lambda: wide_kernel(X, RELU, [1.0, -1.0], gain=1.0), "one number from 0 on"),
    (lambda: wide_kernel(X, RELU, [1.0, 1.0], gain=math.inf), "finite numbers"),
    (lambda: wide_kernel(X * (X[:, :1] < X[:, :1].max()), RELU, [1.0, 1.0], gain=1.0), "has variance zero"),
    (lambda: standard_factors([3], 1.0), "at least two integers"),
    (lambda: deep_relu_condition(exact([1.0, 0.0])), "norms are positive"),
    (lambda: correlations(0 * X), "Sample 0 is zero"),
]


@pytest.mark.bad_input
@pytest.mark.parametrize(("call", "told"), REFUSED)
def test_what_has_no_limit_is_refused(call, told):
    with pytest.raises(ValueError, match=told):
        call()

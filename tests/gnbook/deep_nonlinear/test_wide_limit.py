"""The tangent kernel of infinitely wide networks: activations of Gaussian pairs, layers, and widths that come near."""

import math

import pytest
import torch
from gnbook.deep_nonlinear.duals import centred, hermite_coefficients, leaky_relu, smooth
from gnbook.deep_nonlinear.wide_limit import deep_relu_condition, standard_factors, wide_kernel
from gnbook.deep_nonlinear.width import (
    bernstein_width,
    chernoff_width,
    hidden_layer_kernel,
    smallest_shares,
    unit_spread,
)
from torch.nn import functional

from tests.devices import assert_made_where_its_arguments_are
from tests.gnbook.deep_nonlinear.wide_helpers import (
    KAIMING,
    NETWORKS,
    finite_kernel,
    finite_weights,
    jacobian_kernel,
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


def gram(n=5):
    x = gaussian(0, n, 4)
    return x @ x.mT / 4


def generator():
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("activation", [torch.tanh, functional.gelu, functional.softplus, torch.cos])
def test_centred_means_mean_zero_and_variance_one(activation):
    series = hermite_coefficients(centred(activation), exact([1.0]))[0]
    assert abs(series[0]) < 1e-12 and abs(series.square().sum() - 1) < 1e-12


def test_shares_are_those_of_the_kernel_by_the_hidden_weights():
    found = smallest_shares(X, 50, 1, generator=generator())[0].item()
    hidden = torch.randn(50, 4, generator=generator(), dtype=torch.float64)
    whole = jacobian_kernel([hidden, gaussian(2, 1, 50).sign()], X, torch.relu)
    values = (hidden @ X.mT).relu()
    kernel = whole - values.mT @ values  # what the output layer adds
    limit = 50 * torch.linalg.eigvalsh(hidden_layer_kernel(X))[0]
    assert found == pytest.approx((torch.linalg.eigvalsh(kernel)[0] / limit).item(), rel=1e-8)


def test_the_mean_of_a_unit_is_that_of_a_sample_of_units():
    active = (gaussian(1, 200_000, 4) @ X.mT > 0).double()
    assert torch.allclose(X @ X.mT * (active.mT @ active) / 200_000, hidden_layer_kernel(X), atol=0.02)


def test_twins_have_no_width_and_one_sample_needs_few_units():
    twins = torch.cat([X, X[:1]])
    assert chernoff_width(twins, shortfall=0.5, failure=0.01) == math.inf
    with pytest.raises(ValueError, match="is singular"):
        unit_spread(twins, generator=generator())
    assert unit_spread(X[:1], 20_000, generator=generator()) == pytest.approx(2.0, rel=0.05)
    assert chernoff_width(X[:1], shortfall=0.5, failure=0.01) == 61  # 2 ln(100) / (1 - ln 2) * 2 is 60.03


@pytest.mark.parametrize(
    "function",
    [
        *(leaky_relu(0.2), smooth(torch.tanh)),
        *(hidden_layer_kernel, lambda x: deep_relu_condition(x[0].abs())),
        lambda x: wide_kernel(x, smooth(torch.tanh), [1.0] * 4, gain=1.0, branch=0.5),
        lambda x: (chernoff_width(x, shortfall=0.5, failure=0.1), unit_spread(x, 10, generator=generator())),
        lambda x: list(smallest_shares(x, 9, 3, generator=generator())),
    ],
)
def test_results_stay_on_their_device(function):
    assert_made_where_its_arguments_are((function, gram()))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: RELU(torch.diag(exact([1.0, 0.0]))), "Sample 1 has variance zero"),
        (lambda: wide_kernel(exact([[0.0], [1.0]]), RELU, [1.0, 1.0], gain=1.0), "Sample 0 has variance zero"),
        (lambda: smooth(torch.relu)(gram()), "not resolved by"),
        (lambda: smooth(torch.tanh)(100 * torch.eye(2).double()), "inputs of deviation 10"),
        (lambda: smooth(lambda z: z.sum(1, keepdim=True))(gram()), "must act entrywise"),
        (lambda: centred(torch.ones_like), "activation is a constant"),
        (lambda: wide_kernel(X, RELU, [1.0, -1.0], gain=1.0), "one number from 0 on"),
        (lambda: standard_factors([3], 1.0), "at least two integers"),
        (lambda: standard_factors([3, 0, 2], 1.0), "at least two integers"),
        (lambda: deep_relu_condition(exact([1.0, 0.0])), "norms are positive"),
        (lambda: chernoff_width(X, shortfall=0.5, failure=2.0), "two numbers between 0 and 1"),
        (lambda: bernstein_width(5, 2.0, shortfall=1.0, failure=0.1), "two numbers between 0 and 1"),
        (lambda: bernstein_width(5, 0.5, shortfall=0.5, failure=0.1), "a number from 1 on"),
    ],
)
def test_what_has_no_dual_or_limit_is_refused(call, told):
    with pytest.raises(ValueError, match=told):
        call()

"""Expectations of an activation and of its slopes on pairs of Gaussian values."""

import math

import pytest
import torch
from gnbook.deep_nonlinear.duals import centred, erf, hermite_coefficients, leaky_relu, smooth
from torch.nn import functional

from tests.devices import assert_made_where_its_arguments_are
from tests.gnbook.deep_nonlinear.wide_helpers import on_a_grid
from tests.strategies import exact, gaussian

ONE = exact([1.0])


def gram(n=5, d=4):
    x = gaussian(0, n, d)
    return x @ x.mT / d


def test_a_series_is_that_of_the_function():
    assert torch.allclose(smooth(torch.erf)(gram())[0], erf(gram())[0], atol=1e-13)
    assert torch.allclose(smooth(torch.erf)(gram())[1], erf(gram())[1], atol=1e-12)


def test_hermite_polynomials_are_their_own_series():
    cubic = hermite_coefficients(lambda z: (z**3 - 3 * z) / 6**0.5, ONE)[0]
    assert torch.allclose(cubic.abs(), torch.eye(len(cubic)).double()[3], atol=1e-12)


def test_the_sum_of_squares_is_the_second_moment():
    for scale in (0.1, 1.0, 3.0):
        series = hermite_coefficients(torch.tanh, scale * ONE)[0]
        assert series.square().sum().item() == pytest.approx(
            on_a_grid(torch.tanh, torch.tanh, [scale**2] * 2, 1.0), rel=1e-9
        )


@pytest.mark.parametrize("activation", [torch.tanh, functional.gelu, functional.softplus, torch.cos])
def test_centred_means_mean_zero_and_variance_one(activation):
    series = hermite_coefficients(centred(activation), ONE)[0]
    assert abs(series[0]) < 1e-12 and abs(series.square().sum() - 1) < 1e-12


def test_samples_may_have_variances_of_many_sizes():
    covariance = gram(3)
    sizes = exact([1e-6, 1.0, 2.0]).diag()
    both, slopes = smooth(torch.tanh)(sizes @ covariance @ sizes)
    assert both[0, 0].item() == pytest.approx(1e-12 * covariance[0, 0].item(), rel=1e-6)
    assert slopes[0, 0].item() == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("dual", [leaky_relu(0.2), erf, smooth(torch.tanh)])
def test_duals_stay_on_their_device(dual):
    assert_made_where_its_arguments_are((dual, gram()))


@pytest.mark.bad_input
def test_what_has_no_dual():
    with pytest.raises(ValueError, match="slope is nan"):
        leaky_relu(math.nan)
    with pytest.raises(ValueError, match="Sample 1 has variance zero"):
        erf(torch.diag(exact([1.0, 0.0])))
    with pytest.raises(ValueError, match="not resolved by"):
        smooth(torch.relu)(gram())
    with pytest.raises(ValueError, match="inputs of deviation 10"):
        smooth(torch.tanh)(100 * torch.eye(2).double())
    with pytest.raises(ValueError, match="must act entrywise"):
        smooth(lambda z: z.log())(gram())
    with pytest.raises(ValueError, match="activation is a constant"):
        centred(torch.ones_like)

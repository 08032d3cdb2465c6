"""Expectations of an activation and of its slopes on pairs of Gaussian values."""

import math

import pytest
import torch
from gnbook.deep_nonlinear.duals import centred, erf, hermite_coefficients, leaky_relu, smooth
from torch.nn import functional

from tests.devices import assert_made_where_its_arguments_are
from tests.strategies import exact, gaussian

ONE = exact([1.0])


def gram(n=5, d=4):
    x = gaussian(0, n, d)
    return x @ x.mT / d


def test_hermite_polynomials_are_their_own_series():
    cubic = hermite_coefficients(lambda z: (z**3 - 3 * z) / 6**0.5, ONE)[0]
    assert torch.allclose(cubic.abs(), torch.eye(len(cubic)).double()[3], atol=1e-12)


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
@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: leaky_relu(math.nan), "slope is nan"),
        (lambda: erf(torch.diag(exact([1.0, 0.0]))), "Sample 1 has variance zero"),
        (lambda: smooth(torch.relu)(gram()), "not resolved by"),
        (lambda: smooth(torch.tanh)(100 * torch.eye(2).double()), "inputs of deviation 10"),
        (lambda: smooth(lambda z: z.log())(gram()), "must act entrywise"),
        (lambda: centred(torch.ones_like), "activation is a constant"),
    ],
)
def test_what_has_no_dual_is_refused(call, told):
    with pytest.raises(ValueError, match=told):
        call()

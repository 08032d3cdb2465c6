"""Bounds for linear convolutional networks: those of fully connected ones for kernels of size one."""

import pytest
from gnbook.convolution.bounds import convolution_bound, sharp_convolution
from gnbook.convolution.gauss_newton import convolution_gauss_newton

import gnlib
from gnlib.linear.bounds import zhao_lemma_2
from gnlib.linear.gauss_newton import linear_gauss_newton
from tests.oracles import assert_same_nonzero_spectrum, normal, spectrum


def test_kernels_of_size_one_are_fully_connected_layers():
    weights = [normal(6, 3, seed=0), normal(7, 6, seed=1), normal(2, 7, seed=2)]
    x = normal(20, 3, seed=3)
    filters, samples = [w[..., None] for w in weights], x[..., None]
    moment = gnlib.SecondMoment.from_data(x)
    expected = spectrum(linear_gauss_newton(weights, moment).dense())
    assert_same_nonzero_spectrum(spectrum(convolution_gauss_newton(filters, samples)), expected, 1e-12)
    assert convolution_bound(filters, samples) == pytest.approx(zhao_lemma_2(weights, moment).first, rel=1e-9)
    assert sharp_convolution(filters, samples) == pytest.approx(gnlib.bounds.sharp_linear(weights, moment), rel=1e-9)

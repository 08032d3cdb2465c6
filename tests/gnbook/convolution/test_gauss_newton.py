"""Linear convolutional networks with shared filters and their bounds, against torch's convolutions and other forms."""

from collections import Counter
from itertools import product

import pytest
from gnbook.convolution.bounds import convolution_bound, sharp_convolution
from gnbook.convolution.gauss_newton import convolution_gauss_newton, path_moment
from gnbook.convolution.measured import limit, linear_condition, most_paths

import gnlib
from gnlib.linear.bounds import zhao_lemma_2
from gnlib.linear.gauss_newton import linear_gauss_newton
from tests.oracles import assert_same_nonzero_spectrum, normal, spectrum
from tests.strategies import gaussian


def test_kernels_of_size_one_are_fully_connected_layers():
    weights = [normal(6, 3, seed=0), normal(7, 6, seed=1), normal(2, 7, seed=2)]
    x = normal(20, 3, seed=3)
    filters, samples = [w[..., None] for w in weights], x[..., None]
    moment = gnlib.SecondMoment.from_data(x)
    expected = spectrum(linear_gauss_newton(weights, moment).dense())
    assert_same_nonzero_spectrum(spectrum(convolution_gauss_newton(filters, samples)), expected, 1e-12)
    assert convolution_bound(filters, samples) == pytest.approx(zhao_lemma_2(weights, moment).first, rel=1e-9)
    assert sharp_convolution(filters, samples) == pytest.approx(gnlib.bounds.sharp_linear(weights, moment), rel=1e-9)


@pytest.mark.parametrize("stride", [1, [2, 1]])
def test_the_condition_number_and_its_limit_are_those_of_one_network(stride):
    x = gaussian(0, 30, 2, 7, 7)
    for seed in (1, 3):  # two networks of these sizes: the second finds the patches of the first
        weights = [gaussian(seed, 3, 2, 2, 2), gaussian(seed + 1, 1, 3, 2, 2)]
        matrix = convolution_gauss_newton(weights, x, stride)
        found = linear_condition(weights, x, stride)
        assert found == pytest.approx(float(gnlib.condition_number(matrix)), rel=1e-9)
        paths = path_moment(weights, x, stride)
        assert limit(weights, x, stride) == pytest.approx(float(gnlib.condition_number(paths)), rel=1e-9)


@pytest.mark.parametrize(("layers", "kernel"), [(1, 4), (2, 3), (3, 2), (3, 3)])
def test_paths_are_counted(layers, kernel):
    ends = Counter(sum(taps) for taps in product(range(kernel), repeat=layers))  # along one axis
    assert most_paths(layers, kernel) == (len(ends), max(ends.values()) ** 2)

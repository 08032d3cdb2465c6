"""Condition numbers of many networks are those of each, and paths are counted as they are walked."""

from collections import Counter
from itertools import product

import pytest
from gnbook.convolution.gauss_newton import convolution_gauss_newton, path_moment
from gnbook.convolution.measured import limit, linear_condition, most_paths

import gnlib
from tests.strategies import gaussian


@pytest.mark.parametrize(("stride", "padding"), [(1, 0), ([2, 1], 0), (1, [0, 1])])
def test_the_condition_number_and_its_limit_are_those_of_one_network(stride, padding):
    x = gaussian(0, 30, 2, 7, 7)
    for seed in (1, 3):  # two networks of these sizes: the second finds the patches of the first
        weights = [gaussian(seed, 3, 2, 2, 2), gaussian(seed + 1, 1, 3, 2, 2)]
        matrix = convolution_gauss_newton(weights, x, stride, padding)
        found = linear_condition(weights, x, stride, padding)
        assert found == pytest.approx(float(gnlib.condition_number(matrix)), rel=1e-9)
        paths = path_moment(weights, x, stride, padding)
        assert limit(weights, x, stride, padding) == pytest.approx(float(gnlib.condition_number(paths)), rel=1e-9)


@pytest.mark.parametrize(("layers", "kernel"), [(1, 4), (2, 3), (3, 2), (3, 3)])
def test_paths_are_counted(layers, kernel):
    ends = Counter(sum(taps) for taps in product(range(kernel), repeat=layers))  # along one axis
    assert most_paths(layers, kernel) == (len(ends), max(ends.values()) ** 2)

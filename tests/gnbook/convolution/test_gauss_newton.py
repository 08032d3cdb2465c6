"""Linear convolutional networks with shared filters and their bounds, against torch's convolutions and other forms."""

from collections import Counter
from itertools import product

import pytest
import torch
from gnbook.convolution.bounds import convolution_bound, sharp_convolution
from gnbook.convolution.gauss_newton import convolution_gauss_newton, path_moment
from gnbook.convolution.measured import limit, linear_condition, most_paths
from gnbook.convolution.networks import convolution_weights

import gnlib
from gnlib.linear.bounds import zhao_lemma_2
from gnlib.linear.gauss_newton import linear_gauss_newton
from tests.oracles import assert_same_nonzero_spectrum, normal, spectrum
from tests.strategies import gaussian


def test_the_reduced_form_is_small():
    """Without padding of hidden layers it has a row for each output channel and each place of the effective kernel."""
    filters = convolution_weights([2, 50, 3], [(2, 3), (2, 2)], generator=torch.Generator().manual_seed(0))
    assert convolution_gauss_newton(filters, normal(40, 2, 6, 7, seed=1)).shape == 2 * (3 * 2 * (3 * 4),)
    few = convolution_weights([1, 1, 3], [(2, 3), (2, 2)], generator=torch.Generator().manual_seed(0))
    assert convolution_gauss_newton(few, normal(40, 1, 6, 7, seed=1)).shape == 2 * (6 + 12,)


def test_places_that_no_path_reaches_are_left_out():
    """With two taps in each layer and a stride of 3 in the first, an output sees four of the five places."""
    filters = [normal(5, 1, 2, seed=0), normal(1, 5, 2, seed=1)]
    x = normal(30, 1, 9, seed=2)
    assert len(convolution_gauss_newton(filters, x, stride=(3, 1))) == 4  # places 0, 1, 3 and 4 of 5
    assert len(path_moment(filters, x, stride=(3, 1))) == 4


@pytest.mark.bad_input
def test_filters_larger_than_their_input_are_refused():
    with pytest.raises(ValueError, match=r"size \(2,\) are larger than their input, with padding of size \(1,\)"):
        convolution_gauss_newton([torch.ones(2, 1, 3), torch.ones(1, 2, 2)], torch.ones(4, 1, 3))


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


def test_weights_have_the_scale_of_kaiming():
    first, second = convolution_weights([2, 400, 30], [5, 3], generator=torch.Generator().manual_seed(0))
    assert first.shape == (400, 2, 5) and second.shape == (30, 400, 3)
    assert first.std().item() == pytest.approx(10**-0.5, rel=0.03)
    assert second.std().item() == pytest.approx(1200**-0.5, rel=0.03)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "inputs, hidden, options, message",
    [
        (2, 3, {"padding": (-1, 0)}, r"The padding is -1; an integer from 0 on was expected"),
        (3, 3, {}, r"filters\[0\] takes 2 channels but x has 3; filters are \(out, in, \*size\)"),
        (2, 1, {}, r"filters\[1\] takes 1 channels but the output of filters\[0\] has 3"),
    ],
)
def test_layers_that_do_not_fit_are_refused(inputs, hidden, options, message):
    with pytest.raises(ValueError, match=message):
        convolution_bound([torch.ones(3, 2, 2), torch.ones(1, hidden, 2)], torch.ones(4, inputs, 6), **options)

"""Linear convolutional networks with shared filters, against torch's convolutions and automatic differentiation."""

import pytest
import torch
from gnbook.convolution.bounds import convolution_bound, sharp_convolution
from gnbook.convolution.gauss_newton import convolution_gauss_newton, path_moment
from gnbook.convolution.networks import convolution_network, convolution_weights
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

import gnlib
from tests.gnbook.convolution.cases import fits, many, network, networks
from tests.oracles import assert_same_nonzero_spectrum, normal, spectrum


def jacobian(filters, x, strides, paddings):
    def outputs(*weights):
        return network(weights, x, strides, paddings).flatten()

    parts = torch.func.jacrev(outputs, argnums=tuple(range(len(filters))))(*filters)
    return torch.cat([part.flatten(1) for part in parts], 1)


def check(filters, x, strides, paddings):
    j = jacobian(filters, x, strides, paddings)
    if not j.any():  # with padding and a stride, a network may see nothing
        with pytest.raises(ValueError, match="x is zero in all that the network sees"):
            convolution_gauss_newton(filters, x, strides, paddings)
        return
    expected = torch.linalg.svdvals(j) ** 2 / len(x)
    reduced = convolution_gauss_newton(filters, x, strides, paddings)
    assert_same_nonzero_spectrum(spectrum(reduced), expected, 1e-10)
    assert (reduced - reduced.mT).abs().max() <= 1e-13 * reduced.abs().max()
    assert len(reduced) <= j.shape[1]


@many
@given(networks(1))
def test_the_reduced_form_is_autograd_in_one_dimension(problem):
    check(*problem)


@many
@given(networks(2))
def test_the_reduced_form_is_autograd_in_two_dimensions(problem):
    check(*problem)


SPECIAL = {  # size, channels, kernels, strides, paddings, samples
    "one filter": ((8,), (1, 1, 1), ((3,), (2,)), (1, 1), (0, 0), 20),
    "kernel is input": ((6,), (2, 3, 2), ((6,), (1,)), (1, 1), (0, 0), 20),
    "fully connected on top": ((6, 5), (1, 2, 4), ((3, 2), (4, 4)), (1, 1), (0, 0), 40),
    "kernels of size 1": ((5,), (3, 4, 2), ((1,), (1,)), (1, 1), (0, 0), 20),
    "stride above kernel": ((11,), (1, 3, 1), ((2,), (2,)), (3, 2), (0, 0), 20),
    "padded input": ((6,), (1, 4, 1), ((3,), (3,)), (1, 1), (2, 0), 20),
    "padded hidden layer": ((6,), (1, 4, 1), ((3,), (3,)), (1, 1), (0, 2), 20),
    "same size, 2-D": ((5, 5), (1, 6, 1), ((3, 3), (3, 3)), (1, 1), (1, 1), 40),
    "oblong": ((3, 7), (2, 3, 2), ((1, 4), (3, 1)), (1, 2), (0, 1), 40),
    "fewer samples than inputs": ((9,), (1, 3, 2), ((3,), (3,)), (1, 1), (0, 0), 2),
    "one sample": ((5, 4), (1, 3, 2), ((2, 2), (2, 2)), (1, 1), (0, 1), 1),
    "four layers": ((12,), (1, 3, 2, 3, 1), ((3,), (2,), (1,), (3,)), (1, 2, 1, 1), (1, 0, 1, 0), 20),
    "output seen through padding only": ((1,), (1, 2, 1), ((2,), (2,)), (1, 1), (1, 1), 3),
    "more hidden filters than needed": ((7,), (1, 40, 1), ((3,), (3,)), (1, 1), (0, 1), 20),
    "one layer": ((7,), (2, 3), ((3,),), (2,), (1,), 20),
}


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("case", SPECIAL.values(), ids=SPECIAL)
def test_the_reduced_form_is_autograd_in_special_cases(case, seed):
    size, channels, kernels, strides, paddings, n = case
    filters = convolution_weights(channels, kernels, generator=torch.Generator().manual_seed(seed))
    check(filters, normal(n, channels[0], *size, seed=seed + 9), strides, paddings)


def module(filters, strides, paddings):
    layers = []
    for w, s, p in zip(filters, strides, paddings, strict=True):
        layer = {3: nn.Conv1d, 4: nn.Conv2d}[w.ndim](w.shape[1], w.shape[0], tuple(w.shape[2:]), s, p, bias=False)
        layer.weight.data = w.clone()
        layers.append(layer)
    return nn.Sequential(*layers, nn.Flatten())


@pytest.mark.parametrize("case", SPECIAL.values(), ids=SPECIAL)
def test_the_reduced_form_is_that_of_the_module(case):
    size, channels, kernels, strides, paddings, n = case
    filters = convolution_weights(channels, kernels, generator=torch.Generator().manual_seed(5))
    x = normal(n, channels[0], *size, seed=6)
    gram = gnlib.GaussNewton(module(filters, strides, paddings), x).gram()
    reduced = convolution_gauss_newton(filters, x, strides, paddings)
    assert_same_nonzero_spectrum(spectrum(reduced), spectrum(gram), 1e-10)


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


@many
@given(st.sampled_from([1, 2]).flatmap(networks))
def test_the_path_moment_is_the_one_of_all_paths(problem):
    """The paths by brute force: a filter for each combination of taps, one at a time."""
    filters, x, strides, paddings = problem
    taps = [w[0, 0].numel() for w in filters]
    x, c = x[:, :, *(slice(0, 4),) * (x.ndim - 2)], x.shape[1]
    assume(fits(x.shape[2:], [w.shape[2:] for w in filters], strides, paddings))
    features = []
    for channel in range(c):
        for path in torch.cartesian_prod(*map(torch.arange, taps)).reshape(-1, len(taps)):
            single = [torch.zeros(1, 1, *w.shape[2:]).double() for w in filters]
            for w, tap in zip(single, path, strict=True):
                w.view(-1)[tap] = 1
            features.append(network(single, x[:, channel : channel + 1], strides, paddings).flatten())
    features = torch.stack(features, 1)
    assume(features.any())
    expected = torch.linalg.svdvals(features) ** 2 / len(x)
    assert_same_nonzero_spectrum(spectrum(path_moment(filters, x, strides, paddings)), expected, 1e-10)


@pytest.mark.parametrize(
    "filters, x", [([torch.ones(1, 1, 2)], torch.ones(3, 1, 4)), ([torch.ones(1, 1, 2, 1)] * 2, torch.ones(2, 1, 4, 3))]
)
def test_single_precision_and_parameters_are_taken(filters, x):
    filters = [nn.Parameter(w + 0.1 * i) for i, w in enumerate(filters)]
    for function in (convolution_gauss_newton, path_moment):
        result = function(filters, x)
        assert result.dtype == torch.float64 and not result.requires_grad


CHAIN = [torch.ones(2, 1, 3), torch.ones(1, 2, 2)]
X = torch.ones(4, 1, 6)
EVERY = (convolution_network, convolution_gauss_newton, path_moment, convolution_bound, sharp_convolution)


@pytest.mark.bad_input
@pytest.mark.parametrize("function", EVERY)
@pytest.mark.parametrize(
    "filters, x, options, message",
    [
        ([], X, {}, "filters is empty; a network needs at least one layer"),
        (
            CHAIN,
            X[:, :, :2],
            {},
            r"filters\[0\] has filters of size \(3,\) but its input, padding included, is of size",
        ),
        (CHAIN, X[:, :, :3], {}, r"filters\[1\] has filters of size \(2,\) .* is of size \(1,\); take smaller"),
        (CHAIN, X, {"stride": 0}, r"The stride of filters\[0\] is 0; an integer from 1 on was expected"),
        (CHAIN, X, {"stride": (1, 1.5)}, r"The stride of filters\[1\] is 1.5; an integer"),
        (CHAIN, X, {"padding": -1}, r"The padding of filters\[0\] is -1; an integer from 0 on was expected"),
        (CHAIN, X, {"stride": (1, 1, 1)}, "stride has 3 entries for 2 layers; give one for each, or a single number"),
        (CHAIN, X, {"padding": ()}, "padding has 0 entries for 2 layers"),
        (CHAIN[::-1], X, {}, r"filters\[0\] takes 2 channels but x has 1; filters are \(out, in, \*size\)"),
        ([CHAIN[0], CHAIN[0]], X, {}, r"filters\[1\] takes 1 channels but the output of filters\[0\] has 2"),
        (CHAIN, torch.ones(4, 6), {}, r"x has shape \(4, 6\); samples of shape \(n, channels, length\) or"),
        ([torch.ones(2, 1, 3, 3)], X, {}, r"filters\[0\] has shape \(2, 1, 3, 3\) but the input has 1 axes"),
        (CHAIN, X / 0, {}, "x has 24 entries that are NaN or infinite"),
        ([CHAIN[0] / 0, CHAIN[1]], X, {}, r"filters\[0\] has 6 entries that are NaN or infinite"),
        (CHAIN, X[:0], {}, r"x is empty \(shape \(0, 1, 6\)\)"),
    ],
)
def test_what_is_no_network_or_no_data_for_it_is_refused(function, filters, x, options, message):
    with pytest.raises(ValueError, match=message):
        function(filters, x, **options)


@pytest.mark.bad_input
@pytest.mark.parametrize("function", EVERY[1:])
def test_data_that_the_network_does_not_see_are_refused(function):
    with pytest.raises(ValueError, match="x is zero in all that the network sees; there is nothing to measure"):
        function(CHAIN, 0 * X)
    with pytest.raises(ValueError, match="x is zero in all that the network sees"):
        function([torch.ones(1, 1, 1)], torch.ones(3, 1, 1), stride=3, padding=2)  # reads at -2 and 1

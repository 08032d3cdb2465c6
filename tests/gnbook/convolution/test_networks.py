"""Linear convolutional networks: their outputs, weights and Toeplitz matrices."""

import pytest
import torch
from gnbook.convolution.networks import convolution_network, convolution_weights, toeplitz
from hypothesis import given

from tests.gnbook.convolution.helpers import networks, outputs
from tests.oracles import normal
from tests.strategies import instances


def test_toeplitz_as_the_paper_prints_it():
    matrix = toeplitz(torch.tensor([[[1.0, 2, 3]], [[4, 5, 6]]]), 5)
    assert matrix.dtype == torch.float64
    assert matrix.tolist() == [
        [1, 2, 3, 0, 0],
        [0, 1, 2, 3, 0],
        [0, 0, 1, 2, 3],
        [4, 5, 6, 0, 0],
        [0, 4, 5, 6, 0],
        [0, 0, 4, 5, 6],
    ]


@instances
@given(networks())
def test_the_network_is_that_of_torch(problem):
    assert torch.equal(convolution_network(*problem), outputs(*problem))


def test_one_number_serves_for_all_layers():
    filters, x = [normal(2, 1, 3, seed=0), normal(1, 2, 3, seed=1)], normal(4, 1, 12, seed=2)
    assert torch.equal(convolution_network(filters, x, 2, 1), convolution_network(filters, x, [2, 2], (1, 1)))


def test_weights_have_the_scale_of_kaiming():
    first, second = convolution_weights([2, 400, 30], [5, 3], generator=torch.Generator().manual_seed(0))
    assert first.shape == (400, 2, 5) and second.shape == (30, 400, 3)
    assert first.std().item() == pytest.approx(10**-0.5, rel=0.03)
    assert second.std().item() == pytest.approx(1200**-0.5, rel=0.03)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "arguments, message",
    [
        ((torch.ones(2, 1, 3), (5, 5)), r"filters has shape \(2, 1, 3\) but the input has 2 axes"),
        ((torch.ones(2, 1, 1, 1, 1), (5, 5, 5)), r"the input has 3 axes; \(out, in, k\) for one axis or"),
    ],
)
def test_no_toeplitz_matrix_of_what_is_no_layer(arguments, message):
    with pytest.raises(ValueError, match=message):
        toeplitz(*arguments)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "channels, kernels, message",
    [
        ([1, 2], [3, 3], "channels has 2 entries and sizes has 2; give one size for each layer"),
        ([1, 0], [3], r"channels is \[1, 0\] and sizes is \[3\]; integers from 1 on were expected"),
        ([1, 2], [(3, 0)], r"sizes is \[\(3, 0\)\]; integers from 1 on"),
    ],
)
def test_filters_of_no_size_are_refused(channels, kernels, message):
    with pytest.raises(ValueError, match=message):
        convolution_weights(channels, kernels, generator=torch.Generator())

"""Linear convolutional networks: their outputs, weights and Toeplitz matrices."""

import pytest
import torch
from gnbook.convolution.networks import convolution_weights, toeplitz


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


def test_weights_have_the_scale_of_kaiming():
    first, second = convolution_weights([2, 400, 30], [5, 3], generator=torch.Generator().manual_seed(0))
    assert first.shape == (400, 2, 5) and second.shape == (30, 400, 3)
    assert first.std().item() == pytest.approx(10**-0.5, rel=0.03)
    assert second.std().item() == pytest.approx(1200**-0.5, rel=0.03)

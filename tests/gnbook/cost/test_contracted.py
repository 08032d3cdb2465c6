"""The direct way, and the way by layers, have the same matrix."""

import torch
from gnbook.cost.contracted import contracted
from gnbook.cost.networks import cnn

import gnlib


def test_the_direct_way_has_the_matrix_of_the_way_by_layers():
    torch.manual_seed(0)
    network, x = cnn().double(), torch.randn(3, 3, 16, 16, dtype=torch.float64)
    torch.testing.assert_close(contracted(network, x), gnlib.GaussNewton(network, x).gram())

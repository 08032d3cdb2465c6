"""The lower bound of the smallest eigenvalue from a linear head."""

import pytest
import torch
from gnbook.deep_nonlinear.head import head_floor
from torch import nn

import gnlib
from tests.gnbook.deep_nonlinear.chains import linear
from tests.strategies import gaussian


def smallest(network, x):
    return torch.linalg.eigvalsh(gnlib.GaussNewton(network, x).gram())[0].item()


def test_it_is_an_equality_where_nothing_else_trains():
    for bias in (False, True):
        network = nn.Sequential(nn.Flatten(), linear(6, 2, 0, bias=bias))
        x = gaussian(1, 4, 2, 3)
        assert head_floor(network, x, network[1]) == pytest.approx(smallest(network, x), rel=1e-10)

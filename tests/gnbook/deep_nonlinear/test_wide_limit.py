"""The tangent kernel of infinitely wide networks: its oracle, its layers, and shares of the limit."""

import pytest
import torch
from gnbook.deep_nonlinear.duals import leaky_relu
from gnbook.deep_nonlinear.wide_limit import standard_factors, wide_kernel
from gnbook.deep_nonlinear.width import (
    hidden_layer_kernel,
    smallest_shares,
)

from tests.gnbook.deep_nonlinear.wide_helpers import (
    KAIMING,
    jacobian_kernel,
)
from tests.strategies import gaussian

RELU = leaky_relu(0.0)
X = gaussian(0, 5, 4)


def test_layers_add_up_and_linear_ones_repeat_the_gram_matrix():
    parts = [wide_kernel(X, RELU, factors, gain=KAIMING) for factors in ([1.0, 0, 0], [0, 2.0, 0], [0, 0, 3.0])]
    assert torch.allclose(sum(parts), wide_kernel(X, RELU, [1.0, 2.0, 3.0], gain=KAIMING))
    assert torch.allclose(wide_kernel(X, RELU, [2.0], gain=3.0), 2 * 9 / 4 * X @ X.mT)
    assert torch.allclose(wide_kernel(X, leaky_relu(1.0), [1.0] * 6, gain=1.0), 6 / 4 * X @ X.mT)
    scaled = [wide_kernel(X, RELU, [1.0] * 4, gain=gain) for gain in (0.5, 2.0)]
    assert torch.allclose(scaled[1], 4.0**8 * scaled[0])
    assert standard_factors([4, 9, 2], 3.0) == [4 / 9, 1.0]


def generator():
    return torch.Generator().manual_seed(0)


def test_shares_are_those_of_the_kernel_by_the_hidden_weights():
    found = smallest_shares(X, 50, 1, generator=generator())[0].item()
    hidden = torch.randn(50, 4, generator=generator(), dtype=torch.float64)
    whole = jacobian_kernel([hidden, gaussian(2, 1, 50).sign()], X, torch.relu)
    values = (hidden @ X.mT).relu()
    kernel = whole - values.mT @ values  # what the output layer adds
    limit = 50 * torch.linalg.eigvalsh(hidden_layer_kernel(X))[0]
    assert found == pytest.approx((torch.linalg.eigvalsh(kernel)[0] / limit).item(), rel=1e-8)

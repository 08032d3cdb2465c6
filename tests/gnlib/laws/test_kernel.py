"""The kernel of wide ReLU networks against sums over the units of a wide one, and against its limits."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from gnlib.laws import relu_kernel
from tests.gnlib.derivatives import gradients


@pytest.mark.parametrize(("depth", "slope"), [(2, 0.0), (3, 0.0), (3, 0.3), (3, -1.0)])
def test_wide_networks_have_the_kernel(depth, slope):
    """In the parameterisation of the tangent kernel: factors gain / sqrt(columns) beside standard normal weights."""
    generator, width = torch.Generator().manual_seed(0), 1500
    x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [-0.8, 0.6], [-1.0, 0.0]], dtype=torch.float64)
    columns, gain, found = [2, *[width] * (depth - 1)], (2 / (1 + slope**2)) ** 0.5, 0
    for _ in range(4):
        sizes = zip([*columns[1:], 1], columns, strict=True)
        weights = [torch.randn(*size, generator=generator, dtype=torch.float64).requires_grad_() for size in sizes]
        h = x @ weights[0].T
        for w in weights[1:]:
            h = gain * nn.functional.leaky_relu(h, slope) @ w.T / width**0.5
        jacobian = gradients(h, weights)
        found = found + (jacobian @ jacobian.T).numpy() / (4 * depth)
    np.testing.assert_allclose(found, relu_kernel((x @ x.T).numpy(), depth, slope), atol=0.06)


def test_one_layer_slope_one_and_an_input_with_itself():
    cosines = np.linspace(-1, 1, 9)
    np.testing.assert_array_equal(relu_kernel(cosines, 1), cosines)
    np.testing.assert_allclose(relu_kernel(cosines, 7, slope=1.0), cosines, atol=1e-15)
    for slope in (0.0, 0.5, -2.0):
        assert relu_kernel(1.0, 30, slope) == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(relu_kernel([-0.5, 0.0, 0.9], 20_000), 0.25, atol=5e-4)  # one angle only


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (dict(cosines=[0.0, 1.1]), "between -1 and 1"),
        (dict(cosines=math.nan), "between -1 and 1"),
        (dict(depth=1.5), "depth is 1.5"),
        (dict(depth=True), "depth is True"),
        (dict(slope=math.inf), "slope is inf"),
    ],
    ids=str,
)
def test_what_has_no_kernel_is_refused(change, said):
    with pytest.raises(ValueError, match=said):
        relu_kernel(**(dict(cosines=[0.5], depth=3) | change))

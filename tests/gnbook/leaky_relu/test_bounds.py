"""The limit of wide layers of leaky ReLUs, and the experiment of both pages."""

import pytest
import torch
from gnbook.deep_nonlinear.duals import leaky_relu
from gnbook.leaky_relu.bounds import wide_leaky_relu_kernel
from gnbook.leaky_relu.experiment import condition, module_of, weights_of
from gnbook.shared.hidden_layer import leaky_relu_gram

from gnlib import GaussNewton
from tests.oracles import normal, spectrum


@pytest.mark.parametrize("slope", [0.0, 0.01, 0.5, 1.0, -0.7, 2.0])
def test_the_wide_kernel_is_the_expectation_over_a_gaussian_unit(slope):
    """The dual of the other chapter is checked against an integral over the angle."""
    x = torch.cat([normal(6, 2, seed=3), torch.tensor([[1.0, 0.0], [-2.0, 0.0], [0.0, 3.0]], dtype=torch.float64)])
    expected, _ = leaky_relu(slope)(x @ x.mT)
    torch.testing.assert_close(wide_leaky_relu_kernel(x, slope), expected, rtol=1e-10, atol=1e-8)


def test_the_module_is_the_network_of_the_weights_and_slope_one_counts_the_rank_of_a_linear_one():
    x = normal(6, 9, seed=1)
    for slope in (0.0, 0.3):
        weights = weights_of(x, 7, 3, outputs=2)
        ours, of_module = leaky_relu_gram(weights, x, slope), GaussNewton(module_of(weights, slope), x).gram()
        torch.testing.assert_close(spectrum(ours), spectrum(of_module))
    twice = torch.cat([x, x])  # twelve samples of rank six
    assert condition(weights_of(twice, 20, outputs=2), twice, 1).rank == 12
    assert condition(weights_of(twice, 20, outputs=2), twice, 0.5).rank <= 24

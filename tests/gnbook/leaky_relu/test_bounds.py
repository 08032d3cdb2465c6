"""The limit of wide layers of leaky ReLUs, and the experiment of both pages."""

import itertools
import math

import pytest
import scipy
import torch
from gnbook.leaky_relu.bounds import wide_leaky_relu_kernel
from gnbook.leaky_relu.experiment import condition, module_of, weights_of
from gnbook.shared.hidden_layer import leaky_relu_gram

from gnlib import GaussNewton
from tests.oracles import normal, spectrum


def circle(x, y, slope):
    """Integrate over the circle, with corners where either unit changes sign, for x and y in the plane."""
    corners = sorted({(math.atan2(a[1], a[0]) + s * math.pi / 2) % (2 * math.pi) for a in (x, y) for s in (1, -1)})

    def value(t):
        products = (a[0] * math.cos(t) + a[1] * math.sin(t) for a in (x, y))
        return math.prod(p if p > 0 else slope * p for p in products)

    pieces = itertools.pairwise([0, *corners, 2 * math.pi])
    return sum(scipy.integrate.quad(value, a, b, epsabs=1e-13, epsrel=1e-13)[0] for a, b in pieces) / math.pi


@pytest.mark.parametrize("slope", [0.0, 0.01, 0.5, 1.0, -0.7, 2.0])
def test_the_wide_kernel_is_the_expectation_over_a_gaussian_unit(slope):
    """In the plane a Gaussian vector is a radius of mean square two times a direction, uniform on the circle."""
    x = torch.cat([normal(6, 2, seed=3), torch.tensor([[1.0, 0.0], [-2.0, 0.0], [0.0, 3.0]], dtype=torch.float64)])
    kernel = wide_leaky_relu_kernel(x, slope).tolist()
    for row, a in zip(kernel, x.tolist(), strict=True):
        assert row == pytest.approx([circle(a, b, slope) for b in x.tolist()], rel=1e-10, abs=1e-12)


def test_the_module_is_the_network_of_the_weights_and_slope_one_counts_the_rank_of_a_linear_one():
    x = normal(6, 9, seed=1)
    for slope in (0.0, 0.3):
        weights = weights_of(x, 7, 3, outputs=2)
        ours, of_module = leaky_relu_gram(weights, x, slope), GaussNewton(module_of(weights, slope), x).gram()
        torch.testing.assert_close(spectrum(ours), spectrum(of_module))
    twice = torch.cat([x, x])  # twelve samples of rank six
    assert condition(weights_of(twice, 20, outputs=2), twice, 1).rank == 12
    assert condition(weights_of(twice, 20, outputs=2), twice, 0.5).rank <= 24

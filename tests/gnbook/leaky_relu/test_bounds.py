"""Bounds for leaky ReLUs at their edges, the limit of wide layers, and the experiment of both pages."""

import itertools
import math

import pytest
import scipy
import torch
from gnbook.leaky_relu.bounds import leaky_relu_ends, wide_leaky_relu_kernel, zhao_lemma_4
from gnbook.leaky_relu.experiment import condition, losses_of, module_of, preparations, weights_of
from gnbook.shared.hidden_layer import leaky_relu_gram

from gnlib import GaussNewton
from tests.gnbook.hidden_layers import GOOD
from tests.oracles import network, normal, samples

any_slopes = pytest.mark.parametrize("slope", [0.0, 0.01, 0.5, 1.0, -0.7, 2.0])


def case(d, m, k, n):
    return network((d, m, k), seed=1), samples(n, d, seed=2)


@pytest.mark.parametrize("slope", [0.01, 0.5, 1.0])
def test_an_eigenvalue_lost_in_rounding_counts_as_zero(slope):
    """With more samples than inputs the linear units have a singular matrix, whatever their number."""
    assert zhao_lemma_4(*case(3, 12, 2, 8), slope).second == math.inf
    (v, w), x = case(4, 9, 2, 3)
    x[2] = x[1]
    assert zhao_lemma_4([v, w], x, slope) == (math.inf, math.inf)
    assert leaky_relu_ends([v, w], x, slope).condition.upper == math.inf


def circle(x, y, slope):
    """Integrate over the circle, with corners where either unit changes sign, for x and y in the plane."""
    corners = sorted({(math.atan2(a[1], a[0]) + s * math.pi / 2) % (2 * math.pi) for a in (x, y) for s in (1, -1)})

    def value(t):
        products = (a[0] * math.cos(t) + a[1] * math.sin(t) for a in (x, y))
        return math.prod(p if p > 0 else slope * p for p in products)

    pieces = itertools.pairwise([0, *corners, 2 * math.pi])
    return sum(scipy.integrate.quad(value, a, b, epsabs=1e-13, epsrel=1e-13)[0] for a, b in pieces) / math.pi


@any_slopes
def test_the_wide_kernel_is_the_expectation_over_a_gaussian_unit(slope):
    """In the plane a Gaussian vector is a radius of mean square two times a direction, uniform on the circle."""
    x = torch.cat([normal(6, 2, seed=3), torch.tensor([[1.0, 0.0], [-2.0, 0.0], [0.0, 3.0]], dtype=torch.float64)])
    kernel = wide_leaky_relu_kernel(x, slope)
    for i, j in itertools.product(range(len(x)), repeat=2):
        assert kernel[i, j].item() == pytest.approx(circle(x[i].tolist(), x[j].tolist(), slope), rel=1e-10, abs=1e-12)


def test_the_wide_kernel_takes_samples_at_zero_and_their_multiples():
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0], [-3.0, -4.0]])
    relu = wide_leaky_relu_kernel(x, 0.0)
    expected = 25 / 2 * torch.tensor([[0, 0, 0, 0], [0, 1, 2, 0], [0, 2, 4, 0], [0, 0, 0, 1]], dtype=torch.float64)
    torch.testing.assert_close(relu, expected, rtol=0, atol=1e-13)
    torch.testing.assert_close(wide_leaky_relu_kernel(x, 1.0), (x @ x.T).double(), rtol=0, atol=1e-13)


@pytest.mark.bad_input
@pytest.mark.parametrize("slope", [-0.01, math.nan])
def test_slopes_that_lemma_4_is_not_about_are_refused(slope):
    with pytest.raises(ValueError, match=f"slope is {slope}; Lemma 4 is about slopes from 0 to 1"):
        zhao_lemma_4(GOOD, torch.eye(2), slope)


X = normal(6, 9, seed=1)


def test_each_preparation_does_what_its_name_says():
    raw, standardised, centred, white = preparations(X).values()
    assert raw is X
    torch.testing.assert_close(standardised.mean(), torch.tensor(0.0).double(), atol=1e-12, rtol=0)
    torch.testing.assert_close(standardised.std(), torch.tensor(1.0).double())
    torch.testing.assert_close(centred.mean(0), torch.zeros(9).double(), atol=1e-12, rtol=0)
    torch.testing.assert_close(white @ white.mT / len(X), torch.eye(6).double(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("slope", [0.0, 0.3])
def test_the_module_is_the_network_of_the_weights(slope):
    weights = weights_of(X, 7, 3, outputs=2)
    ours, of_module = leaky_relu_gram(weights, X, slope), GaussNewton(module_of(weights, slope), X).gram()
    torch.testing.assert_close(torch.linalg.eigvalsh(ours), torch.linalg.eigvalsh(of_module))


def test_at_slope_one_directions_that_no_linear_network_has_are_left_out():
    x = torch.cat([X, X])  # twelve samples of rank six
    assert condition(weights_of(x, 20, outputs=2), x, 1).rank == 12
    assert condition(weights_of(x, 20, outputs=2), x, 0.5).rank <= 24


def test_a_training_ends_at_a_twentieth_of_its_first_loss():
    weights, targets = weights_of(X, 30, outputs=2), normal(6, 2, seed=2)
    rate = 1 / torch.linalg.eigvalsh(leaky_relu_gram(weights, X, 0.3))[-1].item()
    losses = losses_of(weights, X, targets, 0.3, rate, 2000)
    assert losses[-1] <= losses[0] / 20 < losses[-2]

"""Liu, Zhu and Belkin 2020, section 3.1: kernel and Hessian of one hidden layer with one input."""

import math

import numpy as np
import pytest
import torch
from gnbook.transition_to_linearity.tensor_norm import norm_221
from hypothesis import given
from hypothesis import strategies as st

from tests.gnbook.transition_to_linearity.helpers import SLACK, SMOOTH, TINY, hess, hessian, networks, norm, slopes
from tests.strategies import exact, gaussian, instances, seeds


@st.composite
def shallow(draw, signs=True):
    m, seed = draw(st.integers(1, 8)), draw(seeds)
    w = gaussian(seed, m) * draw(st.sampled_from([0.0, 1.0, 5.0]))
    v = gaussian(seed + 1, m).sign() if signs else gaussian(seed + 1, m)
    return w, v, draw(st.sampled_from([-3.0, -1.0, 0.0, 0.2, 2.0])), draw(st.sampled_from(list(SMOOTH)))


def eq_8(w, v, x, sigma):
    return v @ sigma(w * x) / len(w) ** 0.5


@pytest.mark.claim("Liu Eq. 9", verdict="holds")
@pytest.mark.claim("Liu Eq. 10", verdict="holds if")
@pytest.mark.claim("Liu Eq. 13, corrected", verdict="holds")
@instances
@given(shallow())
def test_hessian_kernel_and_221_norm_of_one_hidden_layer(network):
    w, v, x, sigma = network
    first, second = slopes(sigma, w * x)
    h = hess(lambda w: eq_8(w, v, x, sigma))(w)
    assert torch.allclose(h, (v * second * x**2 / len(w) ** 0.5).diag(), atol=TINY)
    assert norm(h) <= SMOOTH[sigma].curvature * x**2 / len(w) ** 0.5 * SLACK + TINY
    g = torch.func.grad(lambda w: eq_8(w, v, x, sigma))(w)
    assert torch.isclose(g @ g, (x * first).square().mean(), atol=TINY)
    tensor = hess(lambda w: sigma(w * x))(w).movedim(0, 2)
    largest = second.abs().max().item() * x**2
    assert math.isclose(norm_221(tensor).upper, largest, rel_tol=1e-9, abs_tol=TINY)
    assert largest <= SMOOTH[sigma].curvature * x**2 * SLACK


@pytest.mark.claim("One hidden layer in the limit", verdict="holds")
@pytest.mark.parametrize("sigma", SMOOTH)
def test_the_hessian_times_the_root_of_the_width_tends_to_the_largest_curvature(sigma):
    x, errors = 1.7, []
    for m in (100, 10_000, 1_000_000):
        second = slopes(sigma, gaussian(0, m) * x)[1]
        errors.append(SMOOTH[sigma].curvature * x**2 - second.abs().max().item() * x**2)
    assert 0 <= errors[2] <= errors[1] <= errors[0] and errors[2] < 1e-6


@pytest.mark.claim("Liu Eq. 10", verdict="holds if")
def test_the_kernel_tends_to_an_expectation_that_is_zero_for_the_input_zero():
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    for x in (0.5, 2.0):
        limit = x**2 * (weights / weights.sum() * (1 - np.tanh(nodes * x) ** 2) ** 2).sum()
        kernel = x**2 * slopes(torch.tanh, gaussian(0, 400_000) * x)[0].square().mean().item()
        assert math.isclose(kernel, limit, rel_tol=0.01) and limit > 0
    assert (0.0 * slopes(torch.tanh, gaussian(0, 10) * 0.0)[0]).square().mean() == 0


@pytest.mark.claim("Liu Section 3.1, positive definite kernel", verdict="fails")
def test_an_odd_activation_makes_the_kernel_of_an_input_and_its_opposite_singular():
    w, v = gaussian(0, 50), gaussian(1, 50).sign()
    rows = torch.stack([torch.func.grad(lambda w, x=x: eq_8(w, v, x, torch.tanh))(w) for x in (1.0, -1.0)])
    values = torch.linalg.eigvalsh(rows @ rows.mT)
    assert values[0] < 1e-14 and values[1] > 0.1
    assert torch.trace(rows @ rows.mT) / 2 <= values[1] <= torch.trace(rows @ rows.mT)  # what is needed, and holds


@pytest.mark.claim("Liu Eq. 12", verdict="holds")
@pytest.mark.claim("Liu Eq. 14", verdict="holds if")
@instances
@given(shallow(signs=False))
def test_hessian_and_kernel_by_the_gradient_of_hidden_values(network):
    w, v, x, sigma = network
    tensor = hess(lambda w: sigma(w * x))(w).movedim(0, 2)
    b = v / len(w) ** 0.5
    h = hess(lambda w: eq_8(w, v, x, sigma))(w)
    assert torch.allclose(h, tensor @ b, atol=TINY)
    assert norm(h) <= norm_221(tensor).upper * b.abs().max() * SLACK + TINY
    first = (x * slopes(sigma, w * x)[0]).abs()
    kernel = torch.func.grad(lambda w: eq_8(w, v, x, sigma))(w).square().sum()
    assert torch.isclose(kernel, (first * b).square().sum(), atol=TINY)
    assert first.min() ** 2 * (b @ b) <= kernel * SLACK + TINY <= first.max() ** 2 * (b @ b) * SLACK**2 + 2 * TINY


@pytest.mark.claim("Liu Eq. 13", verdict="fails")
def test_the_second_derivative_is_not_the_first():
    w, x = exact([0.0]), 2.0
    tensor = hess(lambda w: torch.sigmoid(w * x))(w)
    printed = slopes(torch.sigmoid, w * x)[0] * x
    assert printed.item() == 0.5 and tensor.item() == 0.0  # and where the printed bound is too small:
    w, x = exact([-math.log(2 + 3**0.5) / 4]), 4.0  # the largest curvature of the sigmoid
    tensor = hess(lambda w: torch.sigmoid(w * x))(w)
    assert tensor.abs().item() > 1.5 * SMOOTH[torch.sigmoid].lipschitz * x


@pytest.mark.claim("Liu Eq. 14", verdict="holds if")
def test_the_kernel_is_not_of_the_order_of_the_norm_without_the_square():
    kernels = [(scale * exact([1.0])).square().sum() / scale for scale in (1e-3, 1e3)]  # f = scale * w
    assert kernels[1] / kernels[0] > 1e5


@pytest.mark.claim("Liu Eq. 15", verdict="holds")
@pytest.mark.parametrize("m", [1, 7, 10_000])
def test_the_two_norms_of_signs_and_of_a_gaussian_output_layer(m):
    b = gaussian(0, m).sign() / m**0.5
    assert torch.isclose(b.abs().max(), exact(m**-0.5)) and torch.isclose(b @ b, exact(1.0))
    if m == 10_000:  # the output layer of section 3.3
        assert gaussian(0, m).abs().max() > 3


@pytest.mark.claim("One hidden layer, exactly", verdict="holds")
@instances
@given(networks(most=1, skips=False))
def test_the_hessian_of_one_hidden_layer_splits_into_units(network):
    weights, x, sigma, _ = network
    first, second = slopes(sigma, weights[0] @ x / len(x) ** 0.5)
    size, m = (x.norm() / len(x) ** 0.5).item(), len(first)
    corner, side = (weights[1][0] * second).abs() * size**2, first.abs() * size
    by_units = (corner / 2 + torch.hypot(corner / 2, side)).max() / m**0.5
    assert math.isclose(norm(hessian(weights, x, sigma)), by_units, rel_tol=1e-9, abs_tol=TINY)

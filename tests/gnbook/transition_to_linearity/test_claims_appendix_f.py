"""Liu, Zhu and Belkin 2020, appendix F: norms of the layers of a fully connected network."""

import math

import pytest
import torch
from gnbook.transition_to_linearity.ball import TANH, ball_norms, likely_start
from gnbook.transition_to_linearity.linearity import layer_norms
from gnbook.transition_to_linearity.tensor_norm import norm_221
from hypothesis import given
from hypothesis import strategies as st

from tests.gnbook.transition_to_linearity.helpers import (
    SLACK,
    SMOOTH,
    TINY,
    draws,
    gradients,
    identity,
    module,
    networks,
    second_derivatives,
    slopes,
    values,
)
from tests.oracles import norm
from tests.strategies import exact, gaussian, instances, seeds


@pytest.mark.claim("Liu Lemma F.1", verdict="holds")
@pytest.mark.parametrize(("m", "d"), [(2, 1), (4, 3), (8, 8), (16, 1)])
def test_gaussian_matrices_exceed_three_roots_of_their_width_rarely(m, d):
    shapes = [(m, d), (m, m), (1, m)]
    for shape in shapes:
        norms = torch.linalg.matrix_norm(gaussian(m + d, 3000, *shape), 2)
        share, allowed = (norms > 3 * m**0.5).double().mean().item(), 2 * math.exp(-m / 2)
        assert share <= allowed


@pytest.mark.claim("Liu Lemma F.2", verdict="holds")
@instances
@given(seeds, st.integers(1, 5), st.integers(1, 5), st.floats(0, 10))
def test_a_step_changes_a_spectral_norm_by_no_more_than_its_length(seed, m, n, radius):
    w, step = gaussian(seed, m, n), gaussian(seed + 1, m, n)
    assert norm(w + radius * step / torch.linalg.matrix_norm(step)) <= norm(w) + radius + 1e-9


@pytest.mark.claim("Liu Lemma F.3", verdict="fails")
@pytest.mark.parametrize("m", [2, 100])
def test_values_at_the_input_zero_are_larger_than_printed(m):
    h = values([torch.ones(m, 1).double(), torch.ones(1, m).double()], exact([0.0]), torch.sigmoid)[1]
    assert math.isclose(h.norm(), m**0.5 / 2, rel_tol=1e-12) and h.norm() > 1 / 2


def value_bounds(c, m, size, constants, depth):
    """Lemma F.3 with the root of m that it lacks, for weights up to c times the root of m."""
    bounds = [size * constants.lipschitz * c * m**0.5 + m**0.5 * abs(constants.at_zero)]
    for _ in range(depth - 1):
        bounds.append(constants.lipschitz * c * bounds[-1] + m**0.5 * abs(constants.at_zero))
    return bounds


@pytest.mark.claim("Liu Lemma F.3, corrected", verdict="holds")
@pytest.mark.claim("Liu Eqs. 71 and 77, corrected", verdict="holds")
@pytest.mark.claim("Liu Lemma F.5", verdict="holds")
@instances
@given(seeds, st.integers(1, 6), st.integers(1, 3), st.integers(1, 3), st.sampled_from(list(SMOOTH)))
def test_values_norms_by_the_weights_and_gradients_of_layers(seed, m, d, depth, sigma):
    weights = [gaussian(seed + i, m, d if i == 0 else m) for i in range(depth)] + [gaussian(seed + 9, 1, m)]
    x = gaussian(seed + 10, d)
    c, constants = max(norm(w) for w in weights) / m**0.5, SMOOTH[sigma]
    bounds = value_bounds(c, m, x.abs().max().item(), constants, depth)
    for h, bound in zip(values(weights, x, sigma)[1:], bounds, strict=True):
        assert h.norm() <= bound * SLACK
    for layer, below in zip(layer_norms(module(weights, sigma), x[None])[1:], bounds, strict=False):
        assert layer.by_weights <= constants.lipschitz * below / m**0.5 * SLACK
        assert layer.weights_weights <= constants.curvature * below**2 / m * SLACK
    c = max(norm(w) for w in weights[1:]) / m**0.5
    for index, b in enumerate(gradients(weights, x, sigma), 1):
        assert b.norm() <= constants.lipschitz ** (depth - index) * c ** (depth - index + 1) * SLACK


@pytest.mark.claim("Liu Eqs. 71 and 77", verdict="fails")
def test_norms_by_the_weights_with_an_offset_at_the_input_zero():
    weights = [exact([[1.0]]), exact([[1.0]]), exact([[1.0]])]
    second = layer_norms(module(weights, torch.sigmoid), exact([[0.0]]))[1]
    assert second.by_weights > 0.1 and second.weights_weights > 0.01  # both are bounded by zero in print


@pytest.mark.claim("Liu Eqs. 69 to 75, but for 74", verdict="holds")
@pytest.mark.claim("Liu Eq. 74, corrected", verdict="holds")
@pytest.mark.claim("Liu Eqs. 76 and 78", verdict="holds")
@instances
@given(networks(most=1, skips=False))
def test_first_and_second_derivatives_of_a_layer_and_their_norms(network):
    (w, _), a, sigma, _ = network
    fan_in = len(a)
    first, second = slopes(sigma, w @ a / fan_in**0.5)
    by_input, by_weights = torch.func.jacrev(lambda a, w: sigma(w @ a / fan_in**0.5), (0, 1))(a, w)
    aa, mixed, ww = second_derivatives(w, a, sigma)
    eye = torch.eye(len(w)).double()
    assert torch.allclose(by_input, first[:, None] * w / fan_in**0.5, atol=TINY)
    assert torch.allclose(by_weights, torch.einsum("i,k,ij->ijk", first, a, eye) / fan_in**0.5, atol=TINY)
    assert torch.allclose(aa, torch.einsum("i,ij,ik->jki", second, w, w) / fan_in, atol=1e-9 * (1 + aa.abs().max()))
    units = torch.einsum("ij,ik->ijk", eye, eye)
    by_formula = torch.einsum("i,ijk,a,b->jakbi", second, units, a, a) / fan_in
    assert torch.allclose(ww, by_formula.reshape(ww.shape), atol=1e-9 * (1 + ww.abs().max()))
    printed = torch.einsum("i,ij,b,ik->jkbi", second, w, a, eye) / fan_in
    missing = torch.einsum("i,ik,jb->jkbi", first, eye, torch.eye(fan_in).double()) / fan_in**0.5
    assert torch.allclose(mixed, (printed + missing).reshape(mixed.shape), atol=1e-9 * (1 + mixed.abs().max()))
    upper = (second.abs().max() * norm(w) ** 2 * (a @ a)).item() ** 0.5 * second.abs().max().item() ** 0.5 / fan_in
    assert norm_221(mixed).upper <= (upper + first.norm().item() / fan_in**0.5) * SLACK + TINY
    bend = SMOOTH[sigma].curvature
    assert norm_221(aa).upper <= bend * norm(w) ** 2 / fan_in * SLACK + TINY
    assert norm_221(ww).upper <= bend * (a @ a) / fan_in * SLACK + TINY <= bend * a.abs().max() ** 2 * SLACK + 2 * TINY


@pytest.mark.claim("Liu Eq. 74", verdict="fails")
def test_the_mixed_derivative_of_a_linear_layer_is_not_zero():
    _, mixed, _ = second_derivatives(exact([[2.0]]), exact([3.0]), identity)
    assert mixed.item() == 1.0  # alpha = w a; in print sigma'' w a = 0


@pytest.mark.claim("Liu Lemma F.4", verdict="holds")
@pytest.mark.parametrize("m", [4, 20, 100])
def test_hidden_values_beyond_the_logarithm_are_rare(m):
    below = gaussian(0, m)
    exponent = m / (2 * (below @ below).item())
    alpha = gaussian(1, 20_000, m) @ below / m**0.5  # the identity is the steepest 1-Lipschitz activation
    share = (alpha.abs() >= math.log(m)).double().mean().item()
    assert share <= 2 * math.exp(-exponent * math.log(m) ** 2)


@pytest.mark.claim("Liu Lemma F.6", verdict="holds")
@pytest.mark.parametrize("sigma", SMOOTH)
def test_gradients_by_hidden_values_have_small_entries(sigma):
    scaled = []
    for m in (30, 300):
        weights = draws([3, m, m, m, 1], m)
        largest = max(b.abs().max().item() for b in gradients(weights, exact([1.0, -1.0, 0.5]), sigma))
        scaled.append(largest * m**0.5 / math.log(m))
    assert scaled[1] < 1.5 * scaled[0]


@pytest.mark.claim("Liu Eqs. 79 and 103", verdict="holds")
@instances
@given(networks())
def test_the_gradient_by_hidden_values_is_a_product(network):
    weights, x, sigma, skip = network
    h = values(weights, x, sigma, skip)
    b = weights[-1][0] / len(h[-1]) ** 0.5
    for index in range(len(weights) - 2, -1, -1):
        assert torch.allclose(b, gradients(weights, x, sigma, skip)[index], rtol=1e-9, atol=TINY)
        first = slopes(sigma, weights[index] @ h[index] / len(h[index]) ** 0.5)[0]
        below = weights[index].mT @ (first * b) / len(h[index]) ** 0.5
        b = below + b if skip and index else below


@pytest.mark.claim("Liu Eq. 82", verdict="holds")
@pytest.mark.parametrize("radius", [1.0, 5.0])
def test_gradients_by_hidden_values_move_little_in_a_ball(radius):
    moved_by = []
    for m in (10**4, 10**8, 10**12):
        start = likely_start([9, m, m, m], 1.0, TANH, failure=0.01)
        layers = ball_norms(start, TANH, radius)
        largest = max(layer.gradient_max - maximum for layer, maximum in zip(layers, start.maxima, strict=True))
        moved_by.append(largest * (m / math.log(m)) ** 0.5)
    assert moved_by[0] >= moved_by[1] >= moved_by[2]


@pytest.mark.claim("Liu Eq. 85, first layer", verdict="fails")
def test_the_first_preactivations_move_further_than_printed():
    d, size, radius = 4, 1.0, 1.0
    x = torch.ones(d).double()
    step = torch.cat([x[None] / x.norm(), torch.zeros(2, d).double()])  # of norm one
    way = (radius * step @ x / d**0.5).norm().item()
    assert way > radius / d**0.5 * size and math.isclose(way, radius * size, rel_tol=1e-12)

"""Liu, Zhu and Belkin 2020, sections 3.2 and 3.3, up to Eq. 22: kernel and Hessian of deep networks.

Liu, Zhu and Belkin 2020, section 3.3 from Lemma 3.1 on: wide networks in a ball, and on the way to a solution.
"""

import math
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from gnbook.shared.hessian import Hessian, moved
from gnbook.transition_to_linearity.ball import Start, ball_norms, likely_start, measured_start
from gnbook.transition_to_linearity.linearity import (
    LayerNorms,
    layer_norms,
    layered_bound,
    liu_proposition_2_3,
    liu_theorem_3_1,
)
from gnbook.transition_to_linearity.tensor_norm import norm_221
from hypothesis import given
from hypothesis import strategies as st

from gnlib import GaussNewton
from tests.gnbook.transition_to_linearity.helpers import (
    SLACK,
    SMOOTH,
    TINY,
    draws,
    gradients,
    hess,
    hessian,
    module,
    networks,
    second_derivatives,
    slopes,
    values,
)
from tests.oracles import norm
from tests.strategies import exact, gaussian, instances, seeds


def ball_by_hand(start, smoothness, radius, skip):
    """The recursions of Lemma 3.1 with layers counted from one, as the page of claims has them."""
    slope, bend, _ = smoothness
    m, depth = start.widths, len(start.weights)
    s, b, top = ({layer: given[layer - 1] for layer in range(1, depth + 1)} for given in (start[1], *start[3:]))
    a, e, way = {}, {}, {0: 0.0}
    for layer in range(1, depth + 1):
        a[layer - 1] = start.values[layer - 1] + way[layer - 1] / m[layer - 1] ** 0.5
        e[layer] = s[layer] * way[layer - 1] + radius * a[layer - 1]
        way[layer] = slope * e[layer] + (way[layer - 1] if skip and layer > 1 else 0.0)
    h = {depth: radius / m[depth] ** 0.5}
    for layer in range(depth, 1, -1):
        weights = radius / m[layer - 1] ** 0.5 * slope * (b[layer] + h[layer])
        h[layer - 1] = weights + s[layer] * (bend * top[layer] * e[layer] + slope * h[layer]) + skip * h[layer]
    result = []
    for layer in range(1, depth + 1):
        wide, below = s[layer] + radius / m[layer - 1] ** 0.5, a[layer - 1]
        with_input = [slope * wide + skip, bend * wide**2]
        with_input.append(bend * wide * below + slope * (m[layer] / m[layer - 1]) ** 0.5)
        by_input, aa, aw = with_input if layer > 1 else (0.0, 0.0, 0.0)
        result.append([top[layer] + h[layer], by_input, slope * below, aa, aw, bend * below**2])
    return exact(result)


def proposition_3_1(one, two):
    """The bound of two hidden layers, by the four terms of their second derivatives."""
    by_input = one.by_weights**2 * two.input_input + 2 * one.by_weights * two.input_weights
    return (by_input + two.weights_weights) * two.gradient_max + one.weights_weights * one.gradient_max


@pytest.mark.claim("Liu Proposition 3.1", verdict="holds if")
@pytest.mark.claim("Liu Theorem 3.1, corrected", verdict="holds")
@pytest.mark.claim("Layered bound", verdict="holds")
@instances
@given(networks())
def test_the_layered_bound_lies_between_the_hessian_and_the_printed_bounds(network):
    weights, x, sigma, skip = network
    layers, m = layer_norms(module(weights, sigma, skip), x[None]), len(weights[-2])
    assert norm(hessian(weights, x, sigma, skip)) <= layered_bound(layers, m) * SLACK + TINY
    assert layered_bound(layers, m) <= liu_theorem_3_1(layers, m) * SLACK
    assert norm(hessian(weights, x, sigma, skip, fixed=True)) <= layered_bound(layers, None) * SLACK + TINY
    if len(layers) == 2:
        assert layered_bound(layers, None) <= proposition_3_1(*layers) * SLACK


@pytest.mark.claim("Liu Proposition 3.1", verdict="holds if")
def test_a_trained_output_layer_needs_a_term_of_its_own():
    weights = [exact([[1.0]]), exact([[1.0]]), exact([[0.0]])]
    layers = layer_norms(module(weights, torch.tanh), exact([[1.0]]))
    assert proposition_3_1(*layers) == 0 < norm(hessian(weights, exact([1.0]), torch.tanh))


@pytest.mark.claim("Liu Section 3.2, independence", verdict="fails")
def test_the_gradient_by_the_first_hidden_values_depends_on_the_first_weights():
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)

    def mean_square(w1):  # of v w2 tanh'(w2 tanh(w1)) over v and w2, given w1
        return (weights / weights.sum() * nodes**2 * (1 - np.tanh(nodes * np.tanh(w1)) ** 2) ** 2).sum()

    assert math.isclose(mean_square(0.0), 1.0, rel_tol=1e-9) and mean_square(2.0) < 0.5


@pytest.mark.claim("Liu Theorem 3.1", verdict="fails")
def test_a_lipschitz_constant_below_one_breaks_it():
    def f(w):  # one layer, phi(w) = w / 2, so that L_phi = Q_L = 1/2, and v = 0
        return w[1] * w[0] / 2

    second_term = 1 * 0.5**1 * 0.5
    assert norm(hess(f)(exact([1.0, 0.0]))) == 0.5 > second_term


@pytest.mark.claim("Layered bound", verdict="holds")
@instances
@given(*[st.floats(-3, 3)] * 3, st.sampled_from(list(SMOOTH)))
def test_the_layered_bound_is_attained_by_one_unit(w, v, x, sigma):
    weights, x = [exact([[w]]), exact([[v]])], exact([x])
    bound = layered_bound(layer_norms(module(weights, sigma), x[None]), 1)
    assert math.isclose(norm(hessian(weights, x, sigma)), bound, rel_tol=1e-9, abs_tol=TINY)


@pytest.mark.claim("Norms of a layer", verdict="holds")
@pytest.mark.claim("Liu Section 3.3, diagonal of the kernel, corrected", verdict="holds")
@pytest.mark.claim("Liu Remark 3.2", verdict="holds")
@instances
@given(networks(), seeds)
def test_the_norms_of_layers_and_the_kernel_by_hand(network, seed):
    weights, x, sigma, skip = network
    h, b = values(weights, x, sigma, skip), gradients(weights, x, sigma, skip)
    net = module(weights, sigma, skip)
    layers, kernel = layer_norms(net, x[None]), h[-1] @ h[-1] / len(h[-1])
    for index, layer in enumerate(layers):
        by_hand = [norm_221(t).upper for t in second_derivatives(weights[index], h[index], sigma)]
        ours = [layer.input_input, layer.input_weights, layer.weights_weights]
        for one, other in list(zip(ours, by_hand, strict=True))[2 * (index == 0) :]:
            assert math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)
        assert math.isclose(layer.gradient_max, b[index].abs().max(), rel_tol=1e-9, abs_tol=TINY)
        first = slopes(sigma, weights[index] @ h[index] / len(h[index]) ** 0.5)[0]
        kernel = kernel + (first * b[index]).square().sum() * (h[index] @ h[index]) / len(h[index])
    assert torch.isclose(GaussNewton(net, x[None]).tangent_kernel()[0, 0], kernel, rtol=1e-9, atol=TINY)
    other = module([*weights[:-1], gaussian(seed, *weights[-1].shape)], sigma, skip)
    assert [layer[1:] for layer in layers] == [layer[1:] for layer in layer_norms(other, x[None])]


@pytest.mark.claim("Liu Section 3.3, diagonal of the kernel", verdict="fails")
def test_the_output_layer_has_a_share_in_the_kernel():
    net = module([exact([[1.0]]), exact([[0.0]])], torch.tanh)
    kernel = GaussNewton(net, exact([[1.0]])).tangent_kernel().item()
    assert math.isclose(kernel, math.tanh(1.0) ** 2, rel_tol=1e-12)  # the sum over the hidden layers is zero


@pytest.mark.claim("Liu Remark 3.3", verdict="holds")
def test_the_variance_of_the_output_is_the_mean_square_of_the_last_hidden_values():
    for m in (10, 1000):
        weights = draws([3, m, 1], 0)
        h = values(weights, exact([1.0, -1.0, 0.5]), torch.tanh)[-1]
        outputs = gaussian(1, 20_000, m) @ h / m**0.5
        assert math.isclose(outputs.var().item(), (h @ h / m).item(), rel_tol=0.05)


def by_units(w, v, a):
    """Kernel and norm of the Hessian of v tanh(w a) / sqrt(m), where a multiplies the first weights."""
    first, second = slopes(torch.tanh, w * a)
    kernel = torch.tanh(w * a).square().mean() + (v * first * a).square().mean()
    corner, side = (v * second).abs() * a**2, (first * a).abs()
    return kernel.item(), ((corner / 2 + torch.hypot(corner / 2, side)).max() / len(w) ** 0.5).item()


@pytest.mark.claim("Liu Eq. 22", verdict="fails")
@pytest.mark.parametrize("size", [0.5, 1.0, 3.0])
def test_a_first_layer_divided_by_the_root_of_the_width_has_a_vanishing_kernel(size):
    for m, tolerance in ((10**4, 0.1), (10**6, 0.02)):
        w, v = gaussian(0, 2, m)
        kernel, hessian_norm = by_units(w, v, size / m**0.5)
        assert math.isclose(m * kernel, 2 * size**2, rel_tol=tolerance)
        assert math.isclose(hessian_norm / kernel, 1 / (2 * size), rel_tol=tolerance)


@pytest.mark.claim("Liu Lemma 3.1", verdict="holds")
@pytest.mark.parametrize("sigma", SMOOTH)
def test_the_constants_of_two_activations_are_the_least(sigma):
    grid = torch.linspace(-5, 5, 100_001).double()
    first, second = slopes(sigma, grid)
    assert SMOOTH[sigma].at_zero == sigma(exact(0.0))
    assert math.isclose(SMOOTH[sigma].lipschitz, first.abs().max(), rel_tol=1e-8)
    assert math.isclose(SMOOTH[sigma].curvature, second.abs().max(), rel_tol=1e-8)


@pytest.mark.claim("Liu Proposition 2.3", verdict="holds if")
@pytest.mark.claim("Liu Lemma 3.1", verdict="holds")
@pytest.mark.claim("Liu Theorem 3.2", verdict="holds")
@instances
@given(networks(), seeds, st.sampled_from([0.0, 0.1, 1.0, 10.0]))
def test_norms_of_layers_hessian_and_kernel_in_a_ball(network, seed, radius):
    weights, x, sigma, skip = network
    net = module(weights, sigma, skip)
    above = ball_norms(measured_start(net, x[None]), SMOOTH[sigma], radius, skip=skip)
    certificate, before = layered_bound(above, len(weights[-2])), GaussNewton(net, x[None]).tangent_kernel()
    farthest = liu_proposition_2_3(before[0].sqrt(), exact([certificate]), radius)
    step = gaussian(seed, sum(p.numel() for p in net.parameters()))
    with moved(net, radius * step / step.norm()):
        for layer, bound in zip(layer_norms(net, x[None]), above, strict=True):
            assert all(a <= b * SLACK + 1e-9 for a, b in zip(layer, bound, strict=True))
        elsewhere = [p.detach().clone() for p in (*net.hidden, net.last)]
        assert norm(hessian(elsewhere, x, sigma, skip)) <= certificate * SLACK + TINY
        assert ((GaussNewton(net, x[None]).tangent_kernel() - before).abs() <= farthest * SLACK + TINY).all()


def certificate(widths, sigma=torch.tanh, radius=1.0):
    likely = likely_start(widths, 1.0, SMOOTH[sigma], failure=0.01)
    return layered_bound(ball_norms(likely, SMOOTH[sigma], radius), widths[-1])


@pytest.mark.claim("Liu Theorem 3.2", verdict="holds")
@pytest.mark.parametrize("sigma", SMOOTH)
@pytest.mark.parametrize("radius", [1.0, 10.0])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_hessian_in_a_ball_falls_like_the_root_of_log_width_over_width(sigma, radius, depth):
    widths = [10**4, 10**7, 10**10, 10**13, 10**16]
    scaled = [certificate([9] + [m] * depth, sigma, radius) * (m / math.log(m)) ** 0.5 for m in widths]
    assert all(b <= a for a, b in pairwise(scaled)) and scaled[-1] > 0.5 * scaled[-2]


@pytest.mark.claim("The logarithm", verdict="holds")
@instances
@given(networks(smallest=2))
def test_the_largest_output_weight_is_a_lower_bound(network):
    weights, x, sigma, skip = network
    a = values(weights, x, sigma, skip)[-2]
    second = slopes(sigma, weights[-2] @ a / len(a) ** 0.5)[1]
    lower = (weights[-1][0] * second).abs().max() * (a @ a) / len(a) / len(second) ** 0.5
    assert lower <= norm(hessian(weights, x, sigma, skip)) * SLACK + TINY


@pytest.mark.claim("Liu Theorem 3.3", verdict="open")
@pytest.mark.parametrize("ratios", [(1, 3), (5, 1), (1, 4, 2)])
def test_widths_in_fixed_proportions_fall_with_the_smallest(ratios):
    sizes = [10**4, 10**8, 10**12]
    scaled = [certificate([9, *(r * m for r in ratios)]) * (m / math.log(m)) ** 0.5 for m in sizes]
    assert scaled[0] >= scaled[1] >= scaled[2]


@pytest.mark.claim("Liu Remark 3.5", verdict="holds if")
@pytest.mark.parametrize("seed", range(2))
def test_gradient_flow_is_no_longer_than_the_error_over_the_root_of_the_smallest_eigenvalue(seed):
    net = module(draws([3, 40, 1], seed), torch.tanh)
    x, y = gaussian(seed + 1, 3, 3), gaussian(seed + 2, 3, 1)
    way, least, first = 0.0, math.inf, (net(x) - y).norm().item()
    for step in range(400):
        residual = net(x) - y
        if step % 20 == 0:
            least = min(least, torch.linalg.eigvalsh(GaussNewton(net, x).tangent_kernel())[0].item())
        grads = torch.autograd.grad(0.5 * residual.square().sum(), list(net.parameters()))
        way += 0.01 * torch.cat([g.flatten() for g in grads]).norm().item()
        with torch.no_grad():
            for p, g in zip(net.parameters(), grads, strict=True):
                p -= 0.01 * g
    assert 0 < way <= first / least**0.5 * 1.02  # steps are a little longer than the flow


@pytest.mark.claim("Liu Remark 3.5", verdict="holds if")
def test_a_singular_kernel_may_need_any_distance():
    length = [abs(math.atanh(y) - 0.0) for y in (0.9, 0.999999)]  # f = tanh(w), label y, from w = 0: error below 1
    assert length[1] > 4 * length[0] and length[1] > 1


@pytest.mark.claim("Range of the Hessian", verdict="holds")
@instances
@given(networks())
def test_the_hessian_on_its_range_has_the_same_non_zero_eigenvalues(network):
    weights, x, sigma, skip = network
    reduced = Hessian(module(weights, sigma, skip).on_its_range(x[None]), x[None]).dense()
    spectra = [torch.linalg.eigvalsh(matrix) for matrix in (hessian(weights, x, sigma, skip), reduced)]
    size = max(map(len, spectra))
    full, part = (torch.cat([v, v.new_zeros(size - len(v))]).sort().values for v in spectra)
    assert torch.allclose(full, part, atol=1e-9 * (1 + full.abs().max().item()))


@pytest.mark.claim("A Gaussian output layer", verdict="holds")
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("failure", [0.1, 0.01])
def test_the_share_of_large_gradients_over_draws_of_the_output_layer(skip, failure):
    m = 6
    *hidden, _ = draws([3, m, m, m, 1], 5)
    x = exact([1.0, -1.0, 0.5])
    columns = [gradients([*hidden, row[None]], x, torch.tanh, skip)[0] for row in torch.eye(m).double()]
    jacobian = torch.stack(columns) * m**0.5  # d alpha^(L) / d alpha^(1)
    largest = (gaussian(6, 20_000, m) @ jacobian / m**0.5).abs().amax(1)
    bound = norm(jacobian) * (2 * math.log(2 * m / failure) / m) ** 0.5
    assert (largest > bound).double().mean() <= failure
    assert (largest > bound / 3).double().mean() > failure  # a third of it would be no bound


@pytest.mark.claim("Liu Lemma 3.1", verdict="holds")
@instances
@given(seeds, st.integers(1, 4), st.floats(0, 10), st.booleans(), st.sampled_from(list(SMOOTH)))
def test_the_recursions_of_the_norms_in_a_ball(seed, depth, radius, skip, sigma):
    numbers = gaussian(seed, 4, depth).exp().tolist()
    widths = (1 + 10 * gaussian(seed + 1, depth + 1).abs()).int().tolist()
    start = Start(widths, *numbers)
    norms = ball_norms(start, SMOOTH[sigma], radius, skip=skip)
    assert torch.allclose(exact(norms), ball_by_hand(start, SMOOTH[sigma], radius, skip), rtol=1e-10, atol=0)


@pytest.mark.claim("Liu Lemma 3.1", verdict="holds")
@pytest.mark.parametrize("sigma", SMOOTH)
@pytest.mark.parametrize("widths", [[3, 20, 50], [5, 12, 30, 20], [2, 40]])
@pytest.mark.parametrize("failure", [0.5, 1e-3])
def test_the_start_that_is_likely_by_hand(sigma, widths, failure):
    slope, _, at_zero = SMOOTH[sigma]
    likely, depth = likely_start(widths, 1.3, SMOOTH[sigma], failure=failure), len(widths) - 1
    share = failure / (2 * depth + 1)  # L norms of weights, L + 1 of the output layer: its norm, and L maxima
    t = math.sqrt(-2 * math.log(share))
    value, above = 1.3, 1.0
    for layer in range(depth):
        n, m = widths[layer : layer + 2]
        weight = 1 + (m**0.5 + t) / n**0.5
        assert math.isclose(likely.weights[layer], weight, rel_tol=1e-12)
        assert math.isclose(likely.values[layer], value, rel_tol=1e-12)
        value = slope * weight * value * (n / m) ** 0.5 + at_zero
    for layer in reversed(range(depth)):
        m, last = widths[layer + 1], widths[-1]
        assert math.isclose(likely.gradients[layer], above * (last**0.5 + t) / last**0.5, rel_tol=1e-12)
        assert math.isclose(likely.maxima[layer], above * math.sqrt(2 * math.log(2 * m / share) / last), rel_tol=1e-12)
        above *= slope * likely.weights[layer]


@pytest.mark.claim("Liu Theorem 3.1, corrected", verdict="holds")
@pytest.mark.claim("Layered bound", verdict="holds")
@instances
@given(seeds, st.integers(1, 4), st.integers(1, 100))
def test_the_theorem_by_all_terms_and_the_layered_bound_by_eigenvalues(seed, depth, width):
    layers = [LayerNorms(*six) for six in gaussian(seed, depth, 6).exp().tolist()]  # norms of several orders
    count, everywhere = len(layers), range(len(layers))
    by_weights = [layer.by_weights for layer in layers]
    lipschitz = max([1.0, *by_weights, *(layer.by_input for layer in layers)])
    terms = [layer.weights_weights for layer in layers]
    terms += [by_weights[a] * layers[b].input_weights for a, b in product(everywhere, repeat=2) if a < b]
    for a, b, c in product(everywhere, repeat=3):
        if a <= b < c:
            terms.append(by_weights[a] * by_weights[b] * layers[c].input_input)
    first = count**3 * lipschitz ** (2 * count) + count**2 * lipschitz**count + count
    second = count * lipschitz**count * max(by_weights) / width**0.5
    by_hand = first * max(terms) * max(layer.gradient_max for layer in layers) + second
    assert math.isclose(liu_theorem_3_1(layers, width), by_hand, rel_tol=1e-12, abs_tol=TINY)
    way, total = 0.0, 0.0
    for layer in layers:
        side = layer.input_weights * way
        matrix = exact([[layer.input_input * way**2, side], [side, layer.weights_weights]])
        total += layer.gradient_max * torch.linalg.eigvalsh(matrix)[1].item()
        way = ((layer.by_input * way) ** 2 + layer.by_weights**2) ** 0.5
    whole = torch.linalg.eigvalsh(exact([[total, way / width**0.5], [way / width**0.5, 0.0]]))[1].item()
    assert math.isclose(layered_bound(layers, None), total, rel_tol=1e-10)
    assert math.isclose(layered_bound(layers, width), whole, rel_tol=1e-10)

"""Liu, Zhu and Belkin 2020, sections 3.2 and 3.3, appendices E, F and G: kernel and Hessian of deep networks."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from gnbook.shared.hessian import Hessian, moved
from gnbook.transition_to_linearity import linearity
from gnbook.transition_to_linearity.ball import ball_norms, likely_start, measured_start
from gnbook.transition_to_linearity.linearity import layer_norms, layered_bound, liu_theorem_3_1, norm_221
from gnbook.transition_to_linearity.wide_network import WideNetwork
from hypothesis import given
from hypothesis import strategies as st

from gnlib import GaussNewton
from tests.gnbook.transition_to_linearity import helpers
from tests.gnbook.transition_to_linearity.helpers import SLACK, SMOOTH, TINY, draws, hessian, module, networks, values
from tests.oracles import norm
from tests.strategies import exact, gaussian, matrices, seeds

smooth = st.sampled_from(list(SMOOTH))


def proposition_3_1(one, two):
    """The bound of two hidden layers, by the four terms of their second derivatives."""
    by_input = one.by_weights**2 * two.input_input + 2 * one.by_weights * two.input_weights
    return (by_input + two.weights_weights) * two.gradient_max + one.weights_weights * one.gradient_max


@pytest.mark.claim("Liu Proposition 3.1", verdict="holds if")
@pytest.mark.claim("Liu Theorem 3.1, corrected", "Layered bound", "The logarithm", verdict="holds")
@pytest.mark.claim("Range of the Hessian", verdict="holds")
@given(networks())
def test_the_layered_bound_lies_between_the_hessian_which_its_range_determines_and_the_printed_bounds(network):
    weights, x, sigma, skip = network
    net, m, whole = module(weights, sigma, skip), len(weights[-2]), hessian(weights, x, sigma, skip)
    layers = layer_norms(net, x[None])
    assert norm(whole) <= layered_bound(layers, m) * SLACK + TINY
    assert layered_bound(layers, m) <= liu_theorem_3_1(layers, m) * SLACK
    assert norm(whole[:-m, :-m]) <= layered_bound(layers, None) * SLACK + TINY  # the output layer fixed
    if len(layers) == 2:
        assert layered_bound(layers, None) <= proposition_3_1(*layers) * SLACK
    a = values(weights, x, sigma, skip)[-2]
    second = helpers.slopes(sigma, weights[-2] @ a / len(a) ** 0.5)[1]
    lower = (weights[-1][0] * second).abs().max() * (a @ a) / len(a) / m**0.5  # by the largest output weight
    assert lower <= norm(whole) * SLACK + TINY
    spectra = [torch.linalg.eigvalsh(h) for h in (whole, Hessian(net.on_its_range(x[None]), x[None]).dense())]
    size = max(map(len, spectra))
    full, part = (torch.cat([v, v.new_zeros(size - len(v))]).sort().values for v in spectra)
    assert torch.allclose(full, part, atol=1e-9 * (1 + full.abs().max().item()))


@pytest.mark.claim("Liu Proposition 3.1", verdict="holds if")
@pytest.mark.claim("Liu Section 3.3, diagonal of the kernel", "Liu Theorem 3.1", verdict="fails")
def test_one_unit_a_layer_needs_terms_that_are_not_in_print():
    one, zero, x = exact([[1.0]]), exact([[0.0]]), exact([1.0])
    layers = layer_norms(module([one, one, zero], torch.tanh), x[None])
    assert proposition_3_1(*layers) == 0 < norm(hessian([one, one, zero], x, torch.tanh))  # of a trained output layer
    kernel = GaussNewton(module([one, zero], torch.tanh), x[None]).tangent_kernel().item()
    assert math.isclose(kernel, math.tanh(1.0) ** 2, rel_tol=1e-12)  # the sum over the hidden layers is zero
    # one layer, phi(w) = w / 2, so that L_phi = Q_L = 1/2, and v = 0: the second term of the theorem is 1/4
    assert norm(helpers.hess(lambda w: w[1] * w[0] / 2)(exact([1.0, 0.0]))) == 0.5 > 1 * 0.5**1 * 0.5


@pytest.mark.claim("Liu Section 3.2, independence", verdict="fails")
def test_the_gradient_by_the_first_hidden_values_depends_on_the_first_weights():
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)

    def mean_square(w1):  # of v w2 tanh'(w2 tanh(w1)) over v and w2, given w1
        return (weights / weights.sum() * nodes**2 * (1 - np.tanh(nodes * np.tanh(w1)) ** 2) ** 2).sum()

    assert math.isclose(mean_square(0.0), 1.0, rel_tol=1e-9) and mean_square(2.0) < 0.5


@pytest.mark.claim("Layered bound", verdict="holds")
@given(*[st.floats(-3, 3)] * 3, smooth)
def test_the_layered_bound_is_attained_by_one_unit(w, v, x, sigma):
    weights, x = [exact([[w]]), exact([[v]])], exact([x])
    bound = layered_bound(layer_norms(module(weights, sigma), x[None]), 1)
    assert math.isclose(norm(hessian(weights, x, sigma)), bound, rel_tol=1e-9, abs_tol=TINY)


@pytest.mark.claim("Norms of a layer", "Liu Section 3.3, diagonal of the kernel, corrected", verdict="holds")
@pytest.mark.claim("Liu Remark 3.2", "Liu Eqs. 79 and 103", verdict="holds")
@given(networks(), seeds)
def test_the_norms_of_layers_the_kernel_and_gradients_by_hidden_values_by_hand(network, seed):
    weights, x, sigma, skip = network
    net, h = module(weights, sigma, skip), values(weights, x, sigma, skip)
    layers, kernel = layer_norms(net, x[None]), h[-1] @ h[-1] / len(h[-1])
    gradient = weights[-1][0] / len(h[-1]) ** 0.5  # the product of Eq. 79, from the output on
    for index, b in reversed(list(enumerate(helpers.gradients(weights, x, sigma, skip)))):
        layer, w, a, root = layers[index], weights[index], h[index], len(h[index]) ** 0.5
        assert torch.allclose(gradient, b, rtol=1e-9, atol=TINY)
        by_hand = [norm_221(t) for t in helpers.second_derivatives(w, a, sigma)][2 * (index == 0) :]
        assert layer[3 + 2 * (index == 0) :] == pytest.approx(by_hand, rel=1e-6, abs=1e-9)
        assert math.isclose(layer.gradient_max, b.abs().max(), rel_tol=1e-9, abs_tol=TINY)
        first = helpers.slopes(sigma, w @ a / root)[0]
        kernel = kernel + (first * b).square().sum() * (a @ a) / root**2
        gradient = w.mT @ (first * b) / root + (b if skip and index else 0)
    assert torch.isclose(GaussNewton(net, x[None]).tangent_kernel()[0, 0], kernel, rtol=1e-9, atol=TINY)
    other = module([*weights[:-1], gaussian(seed, *weights[-1].shape)], sigma, skip)
    assert [layer[1:] for layer in layers] == [layer[1:] for layer in layer_norms(other, x[None])]


@pytest.mark.claim("Liu Remark 3.3", verdict="holds")
@pytest.mark.parametrize("m", [10, 1000])
def test_the_variance_of_the_output_is_the_mean_square_of_the_last_hidden_values(m):
    h = values(draws([3, m, 1], 0), exact([1.0, -1.0, 0.5]), torch.tanh)[-1]
    outputs = gaussian(1, 20_000, m) @ h / m**0.5
    assert math.isclose(outputs.var().item(), (h @ h / m).item(), rel_tol=0.05)


@pytest.mark.claim("Liu Eq. 22", verdict="fails")
@pytest.mark.parametrize("size", [0.5, 1.0, 3.0])
def test_a_first_layer_divided_by_the_root_of_the_width_has_a_vanishing_kernel(size):
    for m, tolerance in ((10**4, 0.1), (10**6, 0.02)):
        (w, v), factor = gaussian(0, 2, m), size / m**0.5
        kernel, largest = helpers.by_units(v, w * factor, factor)  # times m, and that of the Hessian times its root
        assert math.isclose(kernel, 2 * size**2, rel_tol=tolerance)
        assert math.isclose(largest * m**0.5 / kernel, 1 / (2 * size), rel_tol=tolerance)


@pytest.mark.claim("Liu Lemma 3.1", verdict="holds")
@pytest.mark.parametrize("sigma", SMOOTH)
def test_the_constants_of_two_activations_are_the_least(sigma):
    first, second = helpers.slopes(sigma, torch.linspace(-5, 5, 100_001).double())
    least = first.abs().max().item(), second.abs().max().item(), sigma(exact(0.0)).item()
    assert SMOOTH[sigma] == pytest.approx(least, rel=1e-8)


@pytest.mark.claim("Liu Proposition 2.3", verdict="holds if")
@pytest.mark.claim("Liu Lemma 3.1", "Liu Theorem 3.2", verdict="holds")
@given(networks(), seeds, st.sampled_from([0.0, 0.1, 1.0, 10.0]))
def test_norms_of_layers_hessian_and_kernel_in_a_ball(network, seed, radius):
    weights, x, sigma, skip = network
    net = module(weights, sigma, skip)
    above = ball_norms(measured_start(net, x[None]), SMOOTH[sigma], radius, skip=skip)
    certificate, before = layered_bound(above, len(weights[-2])), GaussNewton(net, x[None]).tangent_kernel()
    farthest = linearity.liu_proposition_2_3(before[0].sqrt(), exact([certificate]), radius)
    step = gaussian(seed, sum(p.numel() for p in net.parameters()))
    with moved(net, radius * step / step.norm()):
        for layer, bound in zip(layer_norms(net, x[None]), above, strict=True):
            assert all(a <= b * SLACK + 1e-9 for a, b in zip(layer, bound, strict=True))
        elsewhere = [p.detach().clone() for p in (*net.hidden, net.last)]
        assert norm(hessian(elsewhere, x, sigma, skip)) <= certificate * SLACK + TINY
        assert ((GaussNewton(net, x[None]).tangent_kernel() - before).abs() <= farthest * SLACK + TINY).all()


@pytest.mark.claim("Liu Theorem 3.2", "Liu Eq. 82", verdict="holds")
@pytest.mark.claim("Liu Theorem 3.3", verdict="open")
@pytest.mark.parametrize("sigma", SMOOTH)
@pytest.mark.parametrize("radius", [1.0, 5.0, 10.0])
@pytest.mark.parametrize("ratios", [(1,), (1, 1), (1, 1, 1), (1, 3), (5, 1), (1, 4, 2)])
def test_hessian_and_gradients_in_a_ball_move_like_the_root_of_log_width_over_width(sigma, radius, ratios):
    scaled = []
    for m in (10**4, 10**7, 10**10, 10**13, 10**16):
        start = likely_start([9, *(ratio * m for ratio in ratios)], 1.0, SMOOTH[sigma], failure=0.01)
        layers = ball_norms(start, SMOOTH[sigma], radius)
        moves = max(layer.gradient_max - top for layer, top in zip(layers, start.maxima, strict=True))
        scaled.append((m / math.log(m)) ** 0.5 * exact([layered_bound(layers, ratios[-1] * m), moves]))
    assert all((after <= before).all() for before, after in pairwise(scaled)) and scaled[-1][0] > 0.5 * scaled[-2][0]


@pytest.mark.claim("Liu Remark 3.5", verdict="holds if")
@pytest.mark.parametrize("seed", range(2))
def test_gradient_flow_is_no_longer_than_the_error_over_the_root_of_the_smallest_eigenvalue(seed):
    net = module(draws([3, 40, 1], seed), torch.tanh)
    x, y = gaussian(seed + 1, 3, 3), gaussian(seed + 2, 3, 1)
    descent = torch.optim.SGD(net.parameters(), lr=0.01)
    way, least, first = 0.0, math.inf, (net(x) - y).norm().item()
    for step in range(400):
        if step % 20 == 0:
            least = min(least, torch.linalg.eigvalsh(GaussNewton(net, x).tangent_kernel())[0].item())
        descent.zero_grad()
        (0.5 * (net(x) - y).square().sum()).backward()
        descent.step()
        way += 0.01 * torch.cat([p.grad.flatten() for p in net.parameters()]).norm().item()
    assert 0 < way <= first / least**0.5 * 1.02  # steps are a little longer than the flow
    near, far = (math.atanh(y) for y in (0.9, 0.999999))  # a singular kernel: f = tanh(w), label y, from w = 0
    assert far > 4 * near and far > 1 > 0.999999


def convolutions(network, x):
    """The outputs on images, by the convolutions of torch."""
    h, size = x, network.filter_size
    for w in network.hidden:
        products = torch.nn.functional.conv2d(h, w.view(len(w), h.shape[1], *size), padding="same")
        h = torch.tanh(products / h.shape[1] ** 0.5)
    return h.flatten(1) @ network.last.mT / h.shape[1] ** 0.5


@pytest.mark.claim("Range of the Hessian", verdict="holds")
@pytest.mark.parametrize(
    ("widths", "kernel", "size"),
    [
        ([3, 5, 4, 1], (1, 1), (1, 1)),
        ([2, 9, 8, 1], (1, 3), (1, 3)),
        ([1, 2, 2, 1], (3, 3), (2, 3)),  # more pixels than channels
        ([2, 3, 4, 1], (5, 3), (4, 5)),
    ],
)
@pytest.mark.parametrize("output", [None, torch.tanh])
def test_on_its_range_the_hessian_of_filters_and_of_some_layers_keeps_its_eigenvalues(widths, kernel, size, output):
    weights = draws(widths, 0, filter_size=kernel, pixels=math.prod(size))
    network, x = WideNetwork(weights, filter_size=kernel), gaussian(1, 1, widths[0], *size)
    if kernel == (1, 1):  # and partly frozen
        network.last.requires_grad_(False)
        network.hidden[0].requires_grad_(False)
    assert torch.allclose(network(x), convolutions(network, x), rtol=1e-12)
    reduced = network.on_its_range(x)
    assert torch.allclose(reduced(x), network(x), rtol=1e-12)
    full, part = (torch.linalg.eigvalsh(Hessian(n, x, output=output).dense()) for n in (network, reduced))
    nonzero = [v[v.abs() > 1e-10 * full.abs().max()] for v in (full, part)]
    assert len(nonzero[0]) == len(nonzero[1]) and torch.allclose(*nonzero, rtol=1e-7)


@pytest.mark.claim("A Gaussian output layer", verdict="holds")
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("failure", [0.1, 0.01])
def test_the_share_of_large_gradients_over_draws_of_the_output_layer(skip, failure):
    m = 6
    *hidden, _ = draws([3, m, m, m, 1], 5)
    x = exact([1.0, -1.0, 0.5])
    columns = [helpers.gradients([*hidden, row[None]], x, torch.tanh, skip)[0] for row in torch.eye(m).double()]
    jacobian = torch.stack(columns) * m**0.5  # d alpha^(L) / d alpha^(1)
    largest = (gaussian(6, 20_000, m) @ jacobian / m**0.5).abs().amax(1)
    bound = norm(jacobian) * (2 * math.log(2 * m / failure) / m) ** 0.5
    assert (largest > bound).double().mean() <= failure
    assert (largest > bound / 3).double().mean() > failure  # a third of it would be no bound


# ---- Appendix E: blocks of the Hessian ------------------------------------------------------------------------------


@pytest.mark.claim("Liu Lemma E.1", "Liu Lemma F.2", "Liu Lemma G.1", verdict="holds")
@given(seeds, st.integers(1, 3), st.integers(1, 3), st.floats(0, 10), matrices(3, 2), matrices(2, 4))
def test_norms_of_matrices_of_blocks_of_sums_and_of_products(seed, size, count, radius, b, c):
    blocks = gaussian(seed, count, count, size, size)
    norms, whole = torch.linalg.matrix_norm(blocks, 2), blocks.transpose(1, 2).reshape(count * size, count * size)
    assert norm(whole) <= norm(norms) * SLACK <= norms.sum() * SLACK**2
    step = gaussian(seed + 1, *whole.shape)
    assert norm(whole + radius * step / step.norm()) <= norm(whole) + radius + 1e-9
    assert (b @ c).norm() <= norm(b) * c.norm() * SLACK


def blocks_of_the_hessian(weights, x, sigma, printed=False):
    """H^(l1, l2) of the hidden layers as Appendix E has them, or with its slips corrected."""
    h, b = values(weights, x, sigma), helpers.gradients(weights, x, sigma)
    hidden, count = list(zip(weights[:-1], h, strict=False)), len(b)
    by_input, by_weights = zip(*(helpers.first_derivatives(w, a, sigma) for w, a in hidden), strict=True)
    aa, aw, ww = zip(*(helpers.second_derivatives(w, a, sigma) for w, a in hidden), strict=True)

    def chain(start, stop):  # d alpha_stop / d w_start
        result = by_weights[start].flatten(1)
        for factor in by_input[start + 1 : stop + 1]:
            result = factor @ result
        return result

    def block(l1, l2):
        total = ww[l1] @ b[l1] if l1 == l2 else chain(l1, l2 - 1).mT @ (aw[l2] @ b[l2])
        for index in range(l2 + 1, count):
            right = chain(l2, index if printed else index - 1)
            total = total + chain(l1, index - 1).mT @ (aa[index] @ b[index]) @ right
        return total

    return {(l1, l2): block(l1, l2) for l1 in range(count) for l2 in range(l1, count)}


@pytest.mark.claim("Liu Appendix E, blocks of the Hessian", verdict="fails")
def test_one_factor_too_many_in_the_printed_blocks():
    case = [exact([[w]]) for w in (1.0, 0.5, 1.0)], exact([1.0]), torch.tanh
    block = hessian(*case)[0, 0]
    printed, corrected = (blocks_of_the_hessian(*case, printed)[0, 0].item() for printed in (True, False))
    assert math.isclose(corrected, block, rel_tol=1e-12) and abs(printed - block) > 0.01


@pytest.mark.claim("Liu Appendix E, blocks of the Hessian, corrected", verdict="holds")
@given(networks(skips=False))
def test_the_blocks_of_the_hessian(network):
    weights, x, sigma, _ = network
    h, sizes = hessian(weights, x, sigma), [w.numel() for w in weights]
    parts = [rows.split(sizes, 1) for rows in h.split(sizes)]
    for (l1, l2), block in blocks_of_the_hessian(weights, x, sigma).items():
        assert torch.allclose(block, parts[l1][l2], rtol=1e-8, atol=1e-9 * (1 + norm(h)))


# ---- Appendix F: fully connected networks; and G.4, G.5: with skips --------------------------------------------------


@pytest.mark.claim("Liu Lemma F.1", verdict="holds")
@pytest.mark.parametrize(("m", "d"), [(2, 1), (4, 3), (8, 8), (16, 1)])
def test_gaussian_matrices_exceed_three_roots_of_their_width_rarely(m, d):
    for shape in ((m, d), (m, m), (1, m)):
        norms = torch.linalg.matrix_norm(gaussian(m + d, 3000, *shape), 2)
        assert (norms > 3 * m**0.5).double().mean().item() <= 2 * math.exp(-m / 2)


def identity(z):
    return z


@pytest.mark.claim("Liu Lemma F.3", "Liu Eqs. 71 and 77", "Liu Eq. 74", "Liu Eq. 85, first layer", verdict="fails")
@pytest.mark.claim("Liu Appendix G.1, norms of a convolution", verdict="fails")
def test_small_layers_exceed_what_appendices_f_and_g_allow():
    ones, zero, x = torch.ones(2, 2).double(), exact([[0.0]]), exact([1.0, 1.0])
    h = values([ones[:, :1], ones[:1]], zero[0], torch.sigmoid)[1]
    assert math.isclose(h.norm(), 2**0.5 / 2, rel_tol=1e-12)  # in print at most 1/2, at the input zero
    second = layer_norms(module([ones[:1, :1]] * 3, torch.sigmoid), zero)[1]
    assert second.by_weights > 0.1 and second.weights_weights > 0.01  # both are bounded by zero in print
    mixed = helpers.second_derivatives(exact([[2.0]]), exact([3.0]), identity)[1]
    assert mixed.item() == 1.0  # in print sigma'' w a = 0
    mixed = helpers.hess(lambda a, w: convolution(w, a, identity), (0, 1))(ones[:1, :1], ones[None, :1, :1])[0][1]
    assert mixed.item() == 1.0  # in print a multiple of the curvature of the activation, which is zero
    way = (x / x.norm() @ x / 2**0.5).item()  # of the first preactivations, by a step of length one along x in one row
    assert way > 1 / 2**0.5 and math.isclose(way, 1.0, rel_tol=1e-12)


@pytest.mark.claim("Liu Lemma F.3, corrected", "Liu Eqs. 71 and 77, corrected", "Liu Lemma F.5", verdict="holds")
@pytest.mark.claim("Liu Lemmas G.4 and G.5", verdict="holds")
@given(seeds, st.integers(1, 6), st.integers(1, 3), st.integers(1, 3), smooth, st.booleans())
def test_values_norms_by_the_weights_and_gradients_of_layers(seed, m, d, depth, sigma, skip):
    weights = [gaussian(seed + i, m, m if i else d) for i in range(depth)] + [gaussian(seed + 9, 1, m)]
    x, (slope, bend, at_zero) = gaussian(seed + 10, d), SMOOTH[sigma]
    c, bounds = max(norm(w) for w in weights) / m**0.5, [(x.norm() * (m / d) ** 0.5).item()]
    for index in range(depth):
        bounds.append((slope * c + (skip and index > 0)) * bounds[-1] + m**0.5 * at_zero)
    for h, bound in zip(values(weights, x, sigma, skip)[1:], bounds[1:], strict=True):
        assert h.norm() <= bound * SLACK
    for layer, below in zip(layer_norms(module(weights, sigma, skip), x[None])[1:], bounds[1:], strict=False):
        assert layer.by_weights <= slope * below / m**0.5 * SLACK
        assert layer.weights_weights <= bend * below**2 / m * SLACK
    c = max(norm(w) for w in weights[1:]) / m**0.5
    for index, b in enumerate(helpers.gradients(weights, x, sigma, skip), 1):
        assert b.norm() <= (slope * c + skip) ** (depth - index) * c * SLACK


@pytest.mark.claim("Liu Eqs. 69 to 75, but for 74", "Liu Eq. 74, corrected", "Liu Eqs. 76 and 78", verdict="holds")
@given(networks(most=1, skips=False))
def test_first_and_second_derivatives_of_a_layer_and_their_norms(network):
    (w, _), a, sigma, _ = network
    fan_in, eye = len(a), torch.eye(len(w)).double()
    first, second = helpers.slopes(sigma, w @ a / fan_in**0.5)
    by_input, by_weights = helpers.first_derivatives(w, a, sigma)
    aa, mixed, ww = helpers.second_derivatives(w, a, sigma)

    def same(found, formula):
        return torch.allclose(found, formula.reshape(found.shape), atol=1e-9 * (1 + found.abs().max()))

    assert torch.allclose(by_input, first[:, None] * w / fan_in**0.5, atol=TINY)
    assert torch.allclose(by_weights, torch.einsum("i,k,ij->ijk", first, a, eye) / fan_in**0.5, atol=TINY)
    assert same(aa, torch.einsum("i,ij,ik->jki", second, w, w) / fan_in)
    assert same(ww, torch.einsum("i,ij,ik,a,b->jakbi", second, eye, eye, a, a) / fan_in)
    printed = torch.einsum("i,ij,b,ik->jkbi", second, w, a, eye) / fan_in
    missing = torch.einsum("i,ik,jb->jkbi", first, eye, torch.eye(fan_in).double()) / fan_in**0.5
    assert same(mixed, printed + missing)
    upper = (second.abs().max() ** 2 * norm(w) ** 2 * (a @ a)).sqrt().item() / fan_in
    assert norm_221(mixed) <= (upper + first.norm().item() / fan_in**0.5) * SLACK + TINY
    bend = SMOOTH[sigma].curvature
    assert norm_221(aa) <= bend * norm(w) ** 2 / fan_in * SLACK + TINY
    assert norm_221(ww) <= bend * (a @ a) / fan_in * SLACK + TINY <= bend * a.abs().max() ** 2 * SLACK + 2 * TINY


@pytest.mark.claim("Liu Lemma F.4", verdict="holds")
@pytest.mark.parametrize("m", [4, 20, 100])
def test_hidden_values_beyond_the_logarithm_are_rare(m):
    below = gaussian(0, m)
    alpha = gaussian(1, 20_000, m) @ below / m**0.5  # the identity is the steepest 1-Lipschitz activation
    share = (alpha.abs() >= math.log(m)).double().mean().item()
    assert share <= 2 * math.exp(-m / (2 * (below @ below).item()) * math.log(m) ** 2)


@pytest.mark.claim("Liu Lemma F.6", verdict="holds")
@pytest.mark.parametrize("sigma", SMOOTH)
def test_gradients_by_hidden_values_have_small_entries(sigma):
    scaled = []
    for m in (30, 300):
        found = helpers.gradients(draws([3, m, m, m, 1], m), exact([1.0, -1.0, 0.5]), sigma)
        scaled.append(max(b.abs().max().item() for b in found) * m**0.5 / math.log(m))
    assert scaled[1] < 1.5 * scaled[0]


# ---- Appendix G: convolutions ---------------------------------------------------------------------------------------


def convolution(w, a, sigma):
    """Eq. 93: filters (K, m', m) on an image (m, Q), in one dimension, zeros around it."""
    count, q = len(w), a.shape[1]
    shifted = torch.nn.functional.pad(a, (count // 2, count // 2))
    return sigma(sum(w[k] @ shifted[:, k : k + q] for k in range(count)) / a.shape[0] ** 0.5)


@pytest.mark.claim("Liu Lemmas G.2 and G.3", "Liu Appendix G.1, norms of a convolution, corrected", verdict="holds")
@given(seeds, st.integers(1, 3), st.integers(1, 4), st.sampled_from([1, 3]), st.sampled_from([0.1, 1.0, 3.0]), smooth)
def test_values_of_a_convolution_and_its_norms_with_the_term_that_the_mixed_one_lacks(seed, m, q, count, scale, sigma):
    def layer(a, w):
        return convolution(w, a, sigma).flatten()

    w, a = scale * gaussian(seed, count, m, m), gaussian(seed + 1, m, q)
    (slope, bend, at_zero), size = SMOOTH[sigma], torch.linalg.matrix_norm(a)
    total, reach = sum(norm(f) for f in w) / m**0.5, count * size / m**0.5
    assert layer(a, w).norm() <= (slope * total * size + (m * q) ** 0.5 * at_zero) * SLACK
    by_input, by_weights = (j.flatten(1) for j in torch.func.jacrev(layer, (0, 1))(a, w))
    assert norm(by_input) <= slope * total * SLACK + TINY and norm(by_weights) <= slope * reach * SLACK + TINY
    (aa, aw), (_, ww) = helpers.hess(layer, (0, 1))(a, w)
    aa, aw, ww = (t.reshape(m * q, n, -1).movedim(0, 2) for t, n in ((aa, m * q), (aw, m * q), (ww, w.numel())))
    assert norm_221(aa) <= bend * total**2 * SLACK + TINY
    assert norm_221(ww) <= bend * reach**2 * SLACK + TINY
    assert norm_221(aw) <= bend * total * reach + slope * (count * q) ** 0.5 + TINY

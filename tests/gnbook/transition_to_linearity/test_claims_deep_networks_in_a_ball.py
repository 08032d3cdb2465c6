"""Liu, Zhu and Belkin 2020, section 3.3 from Lemma 3.1 on: wide networks in a ball, and on the way to a solution."""

import math
from itertools import pairwise

import pytest
import torch
from gnbook.shared.hessian import Hessian, moved
from gnbook.transition_to_linearity.ball import ball_norms, likely_start, measured_start
from gnbook.transition_to_linearity.linearity import layer_norms, layered_bound, liu_proposition_2_3
from hypothesis import given
from hypothesis import strategies as st

from gnlib import GaussNewton
from tests.gnbook.transition_to_linearity.helpers import (
    SLACK,
    SMOOTH,
    TINY,
    draws,
    gradients,
    hessian,
    module,
    networks,
    norm,
    slopes,
    values,
)
from tests.strategies import exact, gaussian, instances, seeds


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

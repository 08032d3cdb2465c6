"""Liu, Zhu and Belkin 2020, appendix A: other parameterisations."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnlib import GaussNewton
from tests.gnbook.transition_to_linearity.helpers import TINY, function, hess, hessian, module, networks, norm, slopes
from tests.strategies import exact, gaussian, instances


@pytest.mark.claim("Liu Eqs. 36 to 38", verdict="holds if")
@instances
@given(networks(), st.sampled_from([0.1, 0.5, 3.0]))
def test_one_factor_for_all_layers_rescales_kernel_and_hessian_alike(network, scale):
    weights, x, sigma, skip = network
    sizes, shapes = [w.numel() for w in weights], [w.shape for w in weights]

    def rescaled(v):
        pieces = [p.view(s) / scale for p, s in zip(v.split(sizes), shapes, strict=True)]
        return function(pieces, x, sigma, skip)

    v = torch.cat([scale * w.flatten() for w in weights])
    g, h = torch.func.grad(rescaled)(v), hess(rescaled)(v)
    kernel = GaussNewton(module(weights, sigma, skip), x[None]).tangent_kernel()[0, 0]
    assert torch.isclose(g @ g, kernel / scale**2, rtol=1e-9, atol=TINY / scale**2)
    whole = hessian(weights, x, sigma, skip)
    assert torch.allclose(h, whole / scale**2, rtol=1e-8, atol=1e-10 * (1 + norm(whole)) / scale**2)


@pytest.mark.claim("Liu Eqs. 36 to 38", verdict="holds if")
def test_a_factor_for_each_layer_changes_the_ratio():
    def ratio(scale):  # f = v tanh(w / scale) at v = w = 1 in units of the original
        def f(p):
            return p[1] * torch.tanh(p[0] / scale)

        p = exact([scale, 1.0])
        g = torch.func.grad(f)(p)
        return (norm(hess(f)(p)) / (g @ g)).item()

    assert abs(ratio(0.1) / ratio(1.0) - 1) > 0.1


def lecun(m, first_deviation):
    """Norms of the kernel and of the Hessian of v tanh(w x), x = 1, with v of variance 1/m, by its units."""
    w, v = gaussian(0, m) * first_deviation, gaussian(1, m) / m**0.5
    first, second = slopes(torch.tanh, w)
    corner = (v * second).abs()
    kernel = torch.tanh(w).square().sum() + (v * first).square().sum()
    return kernel.item(), (corner / 2 + torch.hypot(corner / 2, first)).max().item()


@pytest.mark.claim("Liu Eq. 40", verdict="fails")
def test_variance_one_over_width_in_every_layer_keeps_the_ratio():
    ratios = [h / k for k, h in (lecun(m, m**-0.5) for m in (100, 10_000, 1_000_000))]
    assert all(0.4 < r < 0.6 for r in ratios)  # so the Hessian is not o(kernel)
    assert lecun(1_000_000, 1e-3)[0] < 3  # and the kernel is not of the order of the width


@pytest.mark.claim("Liu Eq. 40, corrected", verdict="holds")
def test_variance_one_over_fan_in_has_the_orders_of_eq_40():
    (k1, h1), (k2, h2) = lecun(100, 1.0), lecun(1_000_000, 1.0)
    assert 0.5 < k2 / k1 / 10_000 < 2 and h2 <= 100 * h1 and h2 / k2 < h1 / k1 / 50


@pytest.mark.claim("Liu Appendix A, constant kernel", verdict="holds if")
def test_in_a_ball_of_fixed_radius_the_rescaled_kernel_is_not_constant():
    for m in (100, 100_000):  # f = v tanh(sqrt(m) w) / sqrt(m), v = 1: a step of length one adds 1 to all sqrt(m) w
        z = gaussian(0, m)
        before, after = (slopes(torch.tanh, s)[0].square().sum() for s in (z, z + 1))
        assert after / before < 0.9
        ratio = m**0.5 * slopes(torch.tanh, z)[1].abs().max() / before
        assert ratio < 4 / m**0.5  # although the Hessian is far below the kernel
        short = slopes(torch.tanh, z + m**-0.5)[0].square().sum()
        assert abs(short / before - 1) < 2 / m**0.5  # a step of length 1 / sqrt(m)


@pytest.mark.claim("Liu Eq. 41", verdict="holds if")
@pytest.mark.parametrize("scale", [0.1, 2.0])
def test_descent_on_rescaled_weights_takes_the_same_way_rescaled(scale):
    start, x, y = gaussian(0, 5), 1.3, 0.7

    def way(scale, rate):
        w = scale * start
        for _ in range(50):
            w = w - rate * torch.func.grad(lambda w: 0.5 * (torch.tanh(w / scale * x).sum() - y) ** 2)(w)
        return w

    plain, scaled = way(1.0, 0.02), way(scale, 0.02 * scale**2)
    assert torch.allclose(scaled, scale * plain, rtol=1e-10)

"""Zhao 2024, section 2, Eq. 1 and Remark R1: the Hessian and its two parts."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from gnlib import SecondMoment, linear_gauss_newton
from tests.gnbook.gauss_newton.helpers import LOSSES, derivatives, mean_loss, smooth_networks
from tests.strategies import a_hundred, exact, gaussian, instances, problems, seeds


def both_parts(f, theta, y, loss):
    """Return the outer-product Hessian (with the inner Hessian) and the functional Hessian."""
    outputs, j, second = derivatives(f, theta)
    _, slope, inner = (
        torch.stack(z)
        for z in zip(
            *(derivatives(lambda o, t=t: loss(o, t), out) for out, t in zip(outputs, y, strict=True)), strict=True
        )
    )
    n = len(y)
    return torch.einsum("icp,ice,ieq->pq", j, inner, j) / n, torch.einsum("ic,icpq->pq", slope, second) / n


def hessian(f, theta, y, loss):
    return derivatives(mean_loss(f, y, loss), theta)[2]


def agree(a, b, *scales):
    return torch.linalg.matrix_norm(a - b) <= 1e-11 * sum(torch.linalg.matrix_norm(s) for s in (a, b, *scales))


@pytest.mark.claim("Gauss-Newton decomposition", verdict="holds")
@a_hundred
@given(smooth_networks(), seeds, st.sampled_from(sorted(LOSSES)))
def test_the_hessian_is_the_sum_of_the_two_parts(network, seed, name):
    f, theta = network
    y = gaussian(seed, *f(theta).shape)
    outer, functional = both_parts(f, theta, y, LOSSES[name])
    assert agree(hessian(f, theta, y, LOSSES[name]), outer + functional, outer, functional)


@pytest.mark.claim("Inner Hessian of the MSE loss", verdict="holds if")
@instances
@given(st.integers(1, 5), seeds)
def test_the_inner_hessian_is_the_identity_for_half_the_squared_error(k, seed):
    f, y = gaussian(seed, k), gaussian(seed + 1, k)
    for name, factor in (("half squared error", 1), ("squared error", 2), ("mean squared error", 2 / k)):
        assert torch.allclose(
            derivatives(lambda z, name=name: LOSSES[name](z, y), f)[2], factor * torch.eye(k, dtype=torch.float64)
        )


@pytest.mark.claim("Remark R1", verdict="holds if")
@a_hundred
@given(smooth_networks(), seeds)
def test_the_difference_is_bounded_by_residual_times_curvature(network, seed):
    f, theta = network
    outputs, j, second = derivatives(f, theta)
    g = torch.einsum("icp,icq->pq", j, j) / len(outputs)
    curvature = torch.linalg.matrix_norm(second, 2)
    for size in (0.0, 1e-6, 1.0):
        residual = size * gaussian(seed, *outputs.shape)
        gap = hessian(f, theta, outputs - residual, LOSSES["half squared error"]) - g
        allowed = (residual.abs() * curvature).sum() / len(outputs)
        assert torch.linalg.matrix_norm(gap, 2) <= allowed * (1 + 1e-9) + 1e-11 * (1 + torch.linalg.matrix_norm(g))


def one_hidden_layer(x, m, k):
    """Return f(theta) of a linear network, as smooth_networks do."""
    d = x.shape[1]
    return lambda theta: x @ theta[: m * d].reshape(m, d).mT @ theta[m * d :].reshape(k, m).mT


@pytest.mark.claim("Remark R1, wide networks", verdict="holds if")
@a_hundred
@given(seeds, st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(1, 4))
def test_the_two_hessians_of_a_linear_network_differ_by_the_same_norm_whatever_the_width(seed, d, m, k, n):
    x, theta, y = gaussian(seed, n, d), gaussian(seed + 1, m * d + k * m), gaussian(seed + 2, n, k)
    f, loss = one_hidden_layer(x, m, k), LOSSES["half squared error"]
    outer, functional = both_parts(f, theta, y, loss)
    residual = f(theta) - y
    omega = torch.linalg.matrix_norm(residual.mT @ x / n, 2)
    assert torch.isclose(torch.linalg.matrix_norm(hessian(f, theta, y, loss) - outer, 2), omega, rtol=1e-9)
    assert torch.linalg.eigvalsh(functional)[0] <= -omega * (1 - 1e-9)
    largest, value = torch.linalg.matrix_norm(x.mT @ x / n, 2), mean_loss(f, y, loss)(theta)
    assert omega <= (2 * value * largest).sqrt() * (1 + 1e-9)


@pytest.mark.claim("Remark R1, wide networks", verdict="holds if")
@pytest.mark.parametrize("m", [2, 10, 50])
def test_the_hessian_is_not_small_where_the_gauss_newton_matrix_vanishes(m):
    theta, y, loss = torch.ones(2 * m).double(), exact([[m - 1]]), LOSSES["half squared error"]
    f = one_hidden_layer(exact([[1]]), m, 1)  # d = k = n = 1, and the residual is 1
    outer, _ = both_parts(f, theta, y, loss)
    values = torch.linalg.eigvalsh(hessian(f, theta, y, loss)).abs().sort(descending=True).values
    assert torch.linalg.matrix_rank(outer) == 1  # so its pseudo-condition number is 1
    assert torch.allclose(values[1:], torch.ones(1).double()) and values[0].item() == pytest.approx(2 * m + 1)


@pytest.mark.claim("Eq. 1, an outer product of gradients", verdict="holds if")
def test_the_gradients_are_those_of_the_network_and_not_of_the_loss():
    # f = theta x at x = 1, theta = y = 0: the gradient of the loss vanishes, that of the function does not
    theta, y = torch.zeros(1).double(), torch.zeros(1, 1).double()
    outer, _ = both_parts(lambda t: t.reshape(1, 1), theta, y, LOSSES["half squared error"])
    _, gradient, _ = derivatives(mean_loss(lambda t: t.reshape(1, 1), y, LOSSES["half squared error"]), theta)
    assert outer == 1 and gradient == 0


@pytest.mark.claim("Eq. 1, an outer product of gradients", verdict="holds if")
@instances
@given(problems(1, 3))
def test_the_gauss_newton_matrix_is_the_mean_outer_product_of_the_gradients_of_the_network(problem):
    weights, x = problem
    assume(x.any())
    total = 0
    for sample in x:
        for output in range(weights[-1].shape[0]):  # the gradient of each output at each sample, on its own
            moving = [w.clone().requires_grad_() for w in weights]
            value = sample
            for w in moving:
                value = w @ value
            gradient = torch.cat([g.flatten() for g in torch.autograd.grad(value[output], moving)])
            total = total + torch.outer(gradient, gradient) / len(x)
    ours = torch.linalg.eigvalsh(linear_gauss_newton(weights, SecondMoment.from_data(x)).dense()).flip(0)
    theirs = torch.linalg.eigvalsh(total).flip(0)
    common, tolerance = min(len(ours), len(theirs)), 1e-11 * max(ours[0].item(), 1e-280)
    assert (ours[:common] - theirs[:common]).abs().max() <= tolerance
    assert not any((rest[common:].abs() > tolerance).any() for rest in (ours, theirs))

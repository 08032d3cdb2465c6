"""Zhao 2024, section 2, Eq. 1 and Remark R1: the Hessian and its two parts."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.func import hessian, jacrev

from gnlib import SecondMoment, linear_gauss_newton
from tests.oracles import norm
from tests.strategies import a_hundred, exact, gaussian, instances, problems, seeds


@st.composite
def smooth_networks(draw):
    """Draw a small network with one hidden layer and biases: f(theta) of shape (n, k), and theta."""
    d, m, k, n, seed = *(draw(st.integers(1, 3)) for _ in "dmkn"), draw(seeds)
    activation = draw(st.sampled_from([torch.tanh, torch.nn.functional.softplus, torch.sin, torch.square, lambda z: z]))
    x, theta = gaussian(seed, n, d), gaussian(seed + 1, m * d + m + k * m)
    if draw(st.booleans()):
        x = x[:1].expand(n, d)  # repeated samples: a Gauss-Newton matrix of low rank

    def f(theta):
        v, b, w = theta.split([m * d, m, k * m])
        return activation(x @ v.reshape(m, d).mT + b) @ w.reshape(k, m).mT

    return f, theta


def half_squared(f, y):
    return (f - y).square().sum() / 2


LOSSES = {  # of outputs f and targets y, a sample
    half_squared: lambda k: 1,  # what its inner Hessian is a multiple of the identity by
    lambda f, y: (f - y).square().sum(): lambda k: 2,
    lambda f, y: (f - y).square().mean(): lambda k: 2 / k,
    lambda f, y: torch.logsumexp(f, 0) - f @ torch.softmax(y, 0): None,
}


def mean_loss(f, y, loss=half_squared):
    return lambda theta: sum(loss(o, t) for o, t in zip(f(theta), y, strict=True)) / len(y)


def both_parts(f, theta, y, loss=half_squared):
    """Return the outer-product Hessian (with the inner Hessian) and the functional Hessian."""
    pairs = list(zip(f(theta), y, strict=True))
    slope, inner = (torch.stack([of(loss)(o, t) for o, t in pairs]) for of in (jacrev, hessian))
    j, n = jacrev(f)(theta), len(y)
    outer = torch.einsum("icp,ice,ieq->pq", j, inner, j) / n
    return outer, torch.einsum("ic,icpq->pq", slope, hessian(f)(theta)) / n


@pytest.mark.claim("Gauss-Newton decomposition", verdict="holds")
@a_hundred
@given(smooth_networks(), seeds, st.sampled_from(list(LOSSES)))
def test_the_hessian_is_the_sum_of_the_two_parts(network, seed, loss):
    f, theta = network
    y = gaussian(seed, *f(theta).shape)
    outer, functional = both_parts(f, theta, y, loss)
    whole, total = hessian(mean_loss(f, y, loss))(theta), outer + functional
    scale = sum(matrix.norm() for matrix in (whole, total, outer, functional))
    assert (whole - total).norm() <= 1e-11 * scale


@pytest.mark.claim("Inner Hessian of the MSE loss", verdict="holds if")
@instances
@given(st.integers(1, 5), seeds)
def test_the_inner_hessian_is_the_identity_for_half_the_squared_error(k, seed):
    for loss, factor in list(LOSSES.items())[:3]:
        inner = hessian(loss)(gaussian(seed, k), gaussian(seed + 1, k))
        assert torch.allclose(inner, factor(k) * torch.eye(k, dtype=torch.float64))


@pytest.mark.claim("Remark R1", verdict="holds if")
@a_hundred
@given(smooth_networks(), seeds)
def test_the_difference_is_bounded_by_residual_times_curvature(network, seed):
    f, theta = network
    outputs, j, curvature = f(theta), jacrev(f)(theta), torch.linalg.matrix_norm(hessian(f)(theta), 2)
    g = torch.einsum("icp,icq->pq", j, j) / len(outputs)
    for size in (0.0, 1e-6, 1.0):
        residual = size * gaussian(seed, *outputs.shape)
        gap = hessian(mean_loss(f, outputs - residual))(theta) - g
        allowed = (residual.abs() * curvature).sum() / len(outputs)
        assert norm(gap) <= allowed * (1 + 1e-9) + 1e-11 * (1 + g.norm())


def one_hidden_layer(x, m, k):
    """Return f(theta) of a linear network, as smooth_networks do."""
    d = x.shape[1]
    return lambda theta: x @ theta[: m * d].reshape(m, d).mT @ theta[m * d :].reshape(k, m).mT


@pytest.mark.claim("Remark R1, wide networks", verdict="holds if")
@a_hundred
@given(seeds, st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(1, 4))
def test_the_two_hessians_of_a_linear_network_differ_by_the_same_norm_whatever_the_width(seed, d, m, k, n):
    x, theta, y = gaussian(seed, n, d), gaussian(seed + 1, m * d + k * m), gaussian(seed + 2, n, k)
    f = one_hidden_layer(x, m, k)
    outer, functional = both_parts(f, theta, y)
    omega = norm((f(theta) - y).mT @ x / n)
    assert norm(hessian(mean_loss(f, y))(theta) - outer) == pytest.approx(omega, rel=1e-9)
    assert torch.linalg.eigvalsh(functional)[0] <= -omega * (1 - 1e-9)
    assert omega <= (2 * mean_loss(f, y)(theta) * norm(x.mT @ x / n)).sqrt() * (1 + 1e-9)


@pytest.mark.claim("Remark R1, wide networks", verdict="holds if")
@pytest.mark.parametrize("m", [2, 10, 50])
def test_the_hessian_is_not_small_where_the_gauss_newton_matrix_vanishes(m):
    theta, y, f = (
        torch.ones(2 * m).double(),
        exact([[m - 1]]),
        one_hidden_layer(exact([[1]]), m, 1),
    )  # the residual is 1
    assert torch.linalg.matrix_rank(both_parts(f, theta, y)[0]) == 1  # so its pseudo-condition number is 1
    values = torch.linalg.svdvals(hessian(mean_loss(f, y))(theta))
    assert torch.allclose(values[1:], torch.ones(1).double()) and values[0].item() == pytest.approx(2 * m + 1)


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
    f, zero = (
        one_hidden_layer(exact([[1]]), 1, 1),
        torch.zeros(1, 1).double(),
    )
    theta = exact([0, 1])  # w v at v = 0, target 0: the gradient of the loss vanishes, that of the network does not
    assert both_parts(f, theta, zero)[0].trace() == 1 and not jacrev(mean_loss(f, zero))(theta).any()

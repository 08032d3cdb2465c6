"""Zhao 2024, section 2, Remark R1, appendix H.1: the Hessian and its two parts, conditioning and gradient descent."""

import math

import numpy as np
import pytest
import torch
from gnbook.gauss_newton.bounds import gradient_descent_bound
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.func import jacrev

from gnlib import SecondMoment, linear_gauss_newton
from tests.gnbook.transition_to_linearity.helpers import hess
from tests.oracles import norm
from tests.strategies import a_hundred, exact, gaussian, matrices, orthogonal, problems, seeds


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
    slope, inner = (torch.stack([of(loss)(o, t) for o, t in pairs]) for of in (jacrev, hess))
    j, n = jacrev(f)(theta), len(y)
    outer = torch.einsum("icp,ice,ieq->pq", j, inner, j) / n
    return outer, torch.einsum("ic,icpq->pq", slope, hess(f)(theta)) / n


@pytest.mark.claim("Gauss-Newton decomposition", verdict="holds")
@a_hundred
@given(smooth_networks(), seeds, st.sampled_from(list(LOSSES)))
def test_the_hessian_is_the_sum_of_the_two_parts(network, seed, loss):
    f, theta = network
    y = gaussian(seed, *f(theta).shape)
    outer, functional = both_parts(f, theta, y, loss)
    whole, total = hess(mean_loss(f, y, loss))(theta), outer + functional
    scale = sum(matrix.norm() for matrix in (whole, total, outer, functional))
    assert (whole - total).norm() <= 1e-11 * scale


@pytest.mark.claim("Inner Hessian of the MSE loss", verdict="holds if")
@given(st.integers(1, 5), seeds)
def test_the_inner_hessian_is_the_identity_for_half_the_squared_error(k, seed):
    for loss, factor in list(LOSSES.items())[:3]:
        inner = hess(loss)(gaussian(seed, k), gaussian(seed + 1, k))
        assert torch.allclose(inner, factor(k) * torch.eye(k, dtype=torch.float64))


@pytest.mark.claim("Remark R1", verdict="holds if")
@a_hundred
@given(smooth_networks(), seeds)
def test_the_difference_is_bounded_by_residual_times_curvature(network, seed):
    f, theta = network
    outputs, j, curvature = f(theta), jacrev(f)(theta), torch.linalg.matrix_norm(hess(f)(theta), 2)
    g = torch.einsum("icp,icq->pq", j, j) / len(outputs)
    for size in (0.0, 1e-6, 1.0):
        residual = size * gaussian(seed, *outputs.shape)
        gap = hess(mean_loss(f, outputs - residual))(theta) - g
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
    assert norm(hess(mean_loss(f, y))(theta) - outer) == pytest.approx(omega, rel=1e-9)
    assert torch.linalg.eigvalsh(functional)[0] <= -omega * (1 - 1e-9)
    assert omega <= (2 * mean_loss(f, y)(theta) * norm(x.mT @ x / n)).sqrt() * (1 + 1e-9)


@pytest.mark.claim("Remark R1, wide networks", verdict="holds if")
@pytest.mark.parametrize("m", [2, 10, 50])
def test_the_hessian_is_not_small_where_the_gauss_newton_matrix_vanishes(m):
    theta, f = torch.ones(2 * m).double(), one_hidden_layer(exact([[1]]), m, 1)
    y = exact([[m - 1]])  # the residual is 1
    assert torch.linalg.matrix_rank(both_parts(f, theta, y)[0]) == 1  # so its pseudo-condition number is 1
    values = torch.linalg.svdvals(hess(mean_loss(f, y))(theta))
    assert torch.allclose(values[1:], torch.ones(1).double()) and values[0].item() == pytest.approx(2 * m + 1)


@pytest.mark.claim("Eq. 1, an outer product of gradients", verdict="holds if")
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
    f, zero = one_hidden_layer(exact([[1]]), 1, 1), torch.zeros(1, 1).double()
    theta = exact([0, 1])  # w v at v = 0, target 0: the gradient of the loss vanishes, that of the network does not
    assert both_parts(f, theta, zero)[0].trace() == 1 and not jacrev(mean_loss(f, zero))(theta).any()


# ---- The pseudo-condition number ------------------------------------------------------------------------------------


@pytest.mark.claim("Pseudo-condition number", verdict="holds if")
def test_two_steps_can_leave_the_range_of_the_first_gauss_newton_matrix():
    gradient = torch.func.grad(lambda theta: (theta.prod() - 1) ** 2 / 2)  # f = w v at x = y = 1
    theta = exact([1, 0])  # where the gradient of f is (0, 1)
    first = theta - gradient(theta) / 2
    second = first - gradient(first) / 2
    assert first.tolist() == [1, 0.5] and second.tolist() == [1.125, 0.75]


@pytest.mark.claim("Pseudo-condition number", verdict="holds if")
@given(st.integers(1, 4).flatmap(lambda p: st.tuples(matrices(p, 5), seeds)))
def test_on_a_singular_quadratic_the_pseudo_condition_number_sets_the_rate(case):
    factor, seed = case
    a, w = factor.mT @ factor, gaussian(seed, 5)
    values, q = torch.linalg.eigh(a)
    positive = values > 1e-10 * values[-1]
    assume(positive.any())
    low, high = values[positive][0], values[-1]
    step, null, span = 2 / (low + high), q[:, ~positive], q[:, positive]
    rate = (high / low - 1) / (high / low + 1)
    for _ in range(5):
        after = w - step * (a @ w)
        tolerance = 1e-6 * w.norm()
        assert torch.allclose(null.mT @ after, null.mT @ w, rtol=0, atol=tolerance.item())
        assert (span.mT @ after).norm() <= rate * (span.mT @ w).norm() + tolerance
        w = after


# ---- Gradient descent on a quadratic --------------------------------------------------------------------------------


@st.composite
def quadratics(draw):
    """Draw a positive definite matrix Q diag(eigenvalues) Q^T, with its eigenvalues in descending order."""
    n, seed = draw(st.integers(1, 5)), draw(seeds)
    values = draw(st.lists(st.floats(1e-3, 1e3), min_size=n, max_size=n))
    values, q = exact(values).sort(descending=True).values, orthogonal(seed, n)
    return q, values


@pytest.mark.claim("Gradient descent on a quadratic", "Best step size", verdict="holds")
@given(quadratics(), seeds, st.floats(0, 3))
def test_a_step_contracts_by_the_factor_and_no_step_size_beats_two_over_the_sum(quadratic, seed, relative_step):
    q, values = quadratic
    (high, low), a = values[[0, -1]], q * values @ q.mT

    def factor(step):
        return torch.max((1 - step * high).abs(), (1 - step * low).abs())

    step, w = relative_step / high, gaussian(seed, len(values))
    assert (w - step * (a @ w)).norm() <= (factor(step) + 1e-12) * w.norm()
    reached = max((v - step * (a @ v)).norm() for v in (q[:, 0], q[:, -1]))
    assert torch.isclose(reached, factor(step), rtol=1e-9, atol=1e-12)
    best, kappa = 2 / (high + low), high / low
    assert torch.isclose(factor(best), (kappa - 1) / (kappa + 1), rtol=1e-9, atol=1e-12)
    assert factor(step) >= factor(best) - 1e-12
    w = q[:, 0] + q[:, -1] if len(values) > 1 else q[:, 0]
    for _ in range(3):  # attained in every step, not in the first alone
        after = w - best * (a @ w)
        assert torch.isclose(after.norm(), factor(best) * w.norm(), rtol=1e-6, atol=1e-9)
        w = after


# ---- Gradient descent on other functions: Eq. 2, 3, 27 and 28 --------------------------------------------------------


NODES, WEIGHTS = (torch.from_numpy(z) for z in np.polynomial.legendre.leggauss(60))
NODES, WEIGHTS = (NODES + 1) / 2, WEIGHTS / 2  # on [0, 1]


@st.composite
def functions(draw, convex=True):
    """Draw theta^T A theta / 2 + sum_j c_j psi(a_j . theta), with minimum 0 at 0, its convexity, smoothness and theta.

    With psi = log cosh it is convex; with psi = 1 - cos its curvature is negative in places.
    """
    q, values = draw(quadratics())
    values, n, ridges = (values / values[0]).clamp_min(1e-3), len(values), draw(st.integers(1, 3))
    seed, quadratic = draw(seeds), q * values @ q.mT
    c = gaussian(seed, ridges).abs() * draw(st.sampled_from([0.1, 3.0]))
    a, theta = gaussian(seed + 1, ridges, n), gaussian(seed + 2, n) * draw(st.sampled_from([0.1, 1.0, 5.0]))

    def f(theta):
        z = a @ theta
        ridge = torch.stack([z, -z]).logsumexp(0) - math.log(2) if convex else 1 - torch.cos(z)
        return theta @ quadratic @ theta / 2 + c @ ridge

    return f, torch.linalg.eigvalsh(quadratic)[0], torch.linalg.eigvalsh(quadratic + (a.mT * c) @ a)[-1], theta


def mean_hessian(f, start, end, weights):
    """Return the mean Hessian along a segment, the point at fraction t weighted by the values at NODES."""
    hessians = torch.func.vmap(hess(f))(start + NODES[:, None] * (end - start))
    return torch.einsum("n,nij->ij", WEIGHTS * weights, hessians)


def close(a, b, scale):
    return abs(a - b) <= 1e-9 * scale


@pytest.mark.claim("Eq. 2 and 27", verdict="holds")
@given(functions(), st.floats(0, 1))
def test_each_step_of_the_derivation_with_global_constants_and_the_square_of_the_factor(case, fraction):
    f, mu, smooth, theta = case
    g, square = torch.func.grad(f)(theta), theta @ theta
    step = fraction / smooth
    after, gap, scale = theta - step * g, f(theta), square + 1e-12
    assert close(after @ after, square - 2 * step * (g @ theta) + step**2 * (g @ g), scale)
    convex = (1 - step * mu) * square - 2 * step * gap + step**2 * (g @ g)
    assert after @ after <= convex + 1e-9 * scale
    assert g @ g <= 2 * smooth * gap + 1e-9 * smooth**2 * scale
    last = (1 - step * mu) * square - 2 * step * (1 - step * smooth) * gap
    assert convex <= last + 1e-9 * scale
    assert last <= (1 - step * mu) * square + 1e-9 * scale
    assert after @ after <= (1 - step * mu) * square + 1e-9 * scale
    step = fraction * 2 / (smooth + mu)  # longer steps than 1 / L
    after = theta - step * g
    assert after @ after <= (1 - step * mu) ** 2 * square * (1 + 1e-9) + 1e-20


@pytest.mark.claim("Eq. 2 and 27", verdict="holds")
@given(st.floats(1e-3, 1), st.floats(0, 1), st.floats(-5, 5))
def test_the_squared_factor_is_attained_where_the_printed_one_is_not(mu, step, theta):
    after = theta
    for bound in gradient_descent_bound([step] * 3, [mu] * 3, abs(theta)).tolist()[1:]:
        before, after = after, after - step * mu * after  # on mu theta^2 / 2
        assert after**2 == pytest.approx((1 - step * mu) ** 2 * before**2, abs=1e-12)
        # the factor as printed leaves the distance itself where its square is
        assert after**2 * theta**2 == pytest.approx(bound**2, rel=1e-9, abs=1e-12)
        if 1e-3 < step * mu < 0.999 and abs(theta) > 1e-3:
            assert after**2 < bound * (1 - 1e-4)


@pytest.mark.claim("Eq. 3 and 28, local constants", verdict="fails")
def test_a_local_convexity_promises_too_much():
    def f(theta):  # of curvature 1 on [-1, 1], so that mu = 1, and L = 2 outside; with minimum 0 at 0
        beyond = (theta.abs() - 1).clamp_min(0)
        return theta.abs().clamp_max(1) ** 2 / 2 + beyond + beyond**2

    theta, curvature = exact(2.0), 2.0  # both constants are 2 at the starting point
    slope = torch.func.grad(f)(theta)
    assert theta - slope / 2 == 0.5 and gradient_descent_bound([1 / 2], [curvature], distance=2.0)[-1] == 0
    # strong convexity is the step that breaks: gradient times distance is 6, the claim 2.5 + 2 * 2^2 / 2 = 6.5
    assert slope * theta == 6 and f(theta) == 2.5
    assert slope * theta < f(theta) + curvature * theta**2 / 2


@pytest.mark.claim("Local constants along the path", verdict="holds")
@a_hundred
@given(functions(), st.lists(st.floats(0, 1), min_size=2, max_size=5))
def test_several_steps_with_constants_along_the_path(case, fractions):
    f, _, smoothness, theta = case
    assume(theta @ theta > 1e-6)
    steps, convexities, squares = [], [], [theta @ theta]
    for fraction in fractions:
        mean, g = mean_hessian(f, theta, torch.zeros_like(theta), 2 * (1 - NODES)), torch.func.grad(f)(theta)
        convexities.append((theta @ mean @ theta / (theta @ theta)).item())
        for smooth in torch.logspace(-2, 0, 9).double() * smoothness:  # the least above the curvature along a step
            mean = mean_hessian(f, theta, theta - g / smooth, 2 * (1 - NODES))
            if g @ mean @ g <= smooth * (g @ g):
                break
        steps.append(fraction / max(smooth.item(), convexities[-1]))
        theta = theta - steps[-1] * g
        squares.append(theta @ theta)
    bounds = gradient_descent_bound(steps, convexities, squares[0].sqrt().item())
    assert all(square <= bound * (1 + 1e-6) + 1e-12 for square, bound in zip(squares, bounds, strict=True))


@pytest.mark.claim("Mean curvature along the path", verdict="holds")
@given(st.booleans().flatmap(functions), st.floats(0, 3))
def test_one_step_is_that_of_the_quadratic_with_the_mean_hessian(case, relative_step):
    f, _, smoothness, theta = case
    step, mean = relative_step / smoothness, mean_hessian(f, theta, torch.zeros_like(theta), torch.ones_like(NODES))
    after = theta - step * torch.func.grad(f)(theta)
    assert (after - (theta - step * (mean @ theta))).norm() <= 1e-9 * theta.norm()
    ends = torch.linalg.eigvalsh(mean)[[0, -1]]
    assert after.norm() <= (1 - step * ends).abs().max() * theta.norm() + 1e-9 * theta.norm()

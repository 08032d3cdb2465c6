"""Zhao 2024, section 2 and appendix H.1, Eq. 2, 3, 27 and 28: conditioning and gradient descent."""

import math

import numpy as np
import pytest
import torch
from gnbook.gauss_newton.bounds import gradient_descent_bound
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.strategies import a_hundred, exact, gaussian, instances, matrices, orthogonal, seeds

# ---- The pseudo-condition number ------------------------------------------------------------------------------------


@pytest.mark.claim("Pseudo-condition number", verdict="holds if")
def test_two_steps_can_leave_the_range_of_the_first_gauss_newton_matrix():
    # f = w v at x = y = 1, from (w, v) = (1, 0), where the gradient of f is (0, 1)
    def gradient(w, v):
        return torch.stack([v, w]) * (w * v - 1)

    theta = exact([1, 0])
    first = theta - gradient(*theta) / 2
    second = first - gradient(*first) / 2
    assert first.tolist() == [1, 0.5] and second.tolist() == [1.125, 0.75]


@pytest.mark.claim("Pseudo-condition number", verdict="holds if")
@instances
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
        tolerance = 1e-6 * torch.linalg.vector_norm(w)
        assert torch.allclose(null.mT @ after, null.mT @ w, rtol=0, atol=tolerance.item())
        assert torch.linalg.vector_norm(span.mT @ after) <= rate * torch.linalg.vector_norm(span.mT @ w) + tolerance
        w = after


# ---- Gradient descent on a quadratic --------------------------------------------------------------------------------


@st.composite
def quadratics(draw):
    """Draw a positive definite matrix Q diag(eigenvalues) Q^T, with its eigenvalues in descending order."""
    n, seed = draw(st.integers(1, 5)), draw(seeds)
    values = draw(st.lists(st.floats(1e-3, 1e3), min_size=n, max_size=n))
    values, q = exact(values).sort(descending=True).values, orthogonal(seed, n)
    return q, values


@pytest.mark.claim("Gradient descent on a quadratic", verdict="holds")
@instances
@given(quadratics(), seeds, st.floats(0, 3))
def test_one_step_contracts_by_the_factor_and_an_eigenvector_by_no_more(quadratic, seed, relative_step):
    q, values = quadratic
    step = relative_step / values[0]
    factor = torch.max((1 - step * values[0]).abs(), (1 - step * values[-1]).abs())
    a, w = q * values @ q.mT, gaussian(seed, len(values))
    after = w - step * (a @ w)
    assert torch.linalg.vector_norm(after) <= factor * torch.linalg.vector_norm(w) + 1e-12 * torch.linalg.vector_norm(w)
    reached = max(torch.linalg.vector_norm(v - step * (a @ v)) for v in (q[:, 0], q[:, -1]))
    assert torch.isclose(reached, factor, rtol=1e-9, atol=1e-12)


@pytest.mark.claim("Best step size", verdict="holds")
@instances
@given(quadratics(), st.floats(0, 3))
def test_no_step_size_beats_two_over_the_sum(quadratic, relative_step):
    q, values = quadratic
    high, low = values[0], values[-1]

    def factor(step):
        return torch.max((1 - step * high).abs(), (1 - step * low).abs())

    best, kappa = 2 / (high + low), high / low
    assert torch.isclose(factor(best), (kappa - 1) / (kappa + 1), rtol=1e-9, atol=1e-12)
    assert factor(relative_step / high) >= factor(best) - 1e-12
    w = q[:, 0] + q[:, -1] if len(values) > 1 else q[:, 0]
    a = q * values @ q.mT
    for _ in range(3):  # attained in every step, not in the first alone
        after = w - best * (a @ w)
        assert torch.isclose(
            torch.linalg.vector_norm(after), factor(best) * torch.linalg.vector_norm(w), rtol=1e-6, atol=1e-9
        )
        w = after


# ---- Gradient descent on other functions: Eq. 2, 3, 27 and 28 --------------------------------------------------------


NODES, WEIGHTS = (torch.from_numpy(z) for z in np.polynomial.legendre.leggauss(60))
NODES, WEIGHTS = (NODES + 1) / 2, WEIGHTS / 2  # on [0, 1]


class Function:
    """theta^T A theta / 2 + sum_j c_j psi(a_j . theta), whose global minimum is at 0.

    With psi = log cosh it is convex; with psi = 1 - cos its curvature is negative in places.
    """

    def __init__(self, quadratic, c, a, convex):
        self.quadratic, self.c, self.a, self.convex = quadratic, c, a, convex

    def value(self, theta):
        z = self.a @ theta
        ridge = z.abs() + torch.log1p(torch.exp(-2 * z.abs())) - math.log(2) if self.convex else 1 - torch.cos(z)
        return theta @ self.quadratic @ theta / 2 + self.c @ ridge

    def gradient(self, theta):
        z = self.a @ theta
        return self.quadratic @ theta + (self.c * (torch.tanh(z) if self.convex else torch.sin(z))) @ self.a

    def convexity(self):
        return torch.linalg.eigvalsh(self.quadratic)[0]

    def smoothness(self):
        return torch.linalg.eigvalsh(self.quadratic + (self.a.mT * self.c) @ self.a)[-1]

    def mean_hessian(self, start, end, weights):
        """Return the mean Hessian along a segment, the point at fraction t weighted by the values at NODES."""
        z = (start + NODES[:, None] * (end - start)) @ self.a.mT
        second = (WEIGHTS * weights) @ (1 / torch.cosh(z) ** 2 if self.convex else torch.cos(z))
        return self.quadratic + (self.a.mT * (self.c * second)) @ self.a


@st.composite
def functions(draw, convex=True):
    q, values = draw(quadratics())
    values, n, ridges = (values / values[0]).clamp_min(1e-3), len(values), draw(st.integers(1, 3))
    seed = draw(seeds)
    c = gaussian(seed, ridges).abs() * draw(st.sampled_from([0.1, 3.0]))
    f = Function(q * values @ q.mT, c, gaussian(seed + 1, ridges, n), convex)
    return f, gaussian(seed + 2, n) * draw(st.sampled_from([0.1, 1.0, 5.0]))


def close(a, b, scale):
    return abs(a - b) <= 1e-9 * scale


@pytest.mark.claim("Eq. 2 and 27", verdict="holds")
@instances
@given(functions(), st.floats(0, 1))
def test_each_step_of_the_derivation_with_global_constants_and_the_square_of_the_factor(case, fraction):
    f, theta = case
    mu, smooth, g, square = f.convexity(), f.smoothness(), f.gradient(theta), theta @ theta
    step = fraction / smooth
    after, gap, scale = theta - step * g, f.value(theta), square + 1e-12
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
@instances
@given(st.floats(1e-3, 1), st.floats(0, 1), st.floats(-5, 5))
def test_the_squared_factor_is_attained_where_the_printed_one_is_not(mu, step, theta):
    f, start = Function(exact([[mu]]), exact([0]), exact([[1]]), convex=True), exact([theta])  # mu theta^2 / 2
    after, printed = start, gradient_descent_bound([step] * 3, [mu] * 3, abs(theta))
    for bound in printed[1:]:
        before, after = after, after - step * f.gradient(after)
        assert (after @ after).item() == pytest.approx(((1 - step * mu) ** 2 * before @ before).item(), abs=1e-12)
        # the factor as printed leaves the distance itself where its square is
        assert (after @ after * (start @ start)).item() == pytest.approx(bound.item() ** 2, rel=1e-9, abs=1e-12)
        if 1e-3 < step * mu < 0.999 and abs(theta) > 1e-3:
            assert after @ after < bound * (1 - 1e-4)


class Kinked:
    """A function of one variable with minimum 0 at 0: curvature `inner` on [-1, 1] and `outer` outside."""

    def __init__(self, inner, outer):
        self.inner, self.outer = inner, outer

    def value(self, theta):
        beyond = max(abs(theta) - 1, 0)
        return self.inner * min(abs(theta), 1) ** 2 / 2 + self.inner * beyond + self.outer * beyond**2 / 2

    def gradient(self, theta):
        return math.copysign(self.inner * min(abs(theta), 1) + self.outer * max(abs(theta) - 1, 0), theta)

    def curvature(self, theta):
        return self.inner if abs(theta) <= 1 else self.outer


@pytest.mark.claim("Eq. 3 and 28, local constants", verdict="fails")
def test_a_local_convexity_promises_too_much():
    f, theta = Kinked(inner=1, outer=2), 2  # L = 2 and mu = 1 everywhere; both are 2 at the starting point
    after = theta - f.gradient(theta) / 2
    bound = gradient_descent_bound([1 / 2], [f.curvature(theta)], distance=theta)[-1]
    assert (after, bound) == (0.5, 0)
    # strong convexity is the step that breaks: gradient times distance is 6, the claim 2.5 + 2 * 2^2 / 2 = 6.5
    assert f.gradient(theta) * theta == 6 and f.value(theta) == 2.5
    assert f.gradient(theta) * theta < f.value(theta) + f.curvature(theta) * theta**2 / 2


def lipschitz_along_the_step(f, theta):
    """Return the smallest L of a list that bounds the mean curvature along the gradient step of length 1 / L."""
    g = f.gradient(theta)
    for smooth in torch.logspace(-2, 0, 9).double() * f.smoothness():
        mean = f.mean_hessian(theta, theta - g / smooth, 2 * (1 - NODES))
        if g @ mean @ g <= smooth * (g @ g):
            return smooth
    return f.smoothness()


@pytest.mark.claim("Local constants along the path", verdict="holds")
@a_hundred
@given(functions(), st.lists(st.floats(0, 1), min_size=2, max_size=5))
def test_several_steps_with_constants_along_the_path(case, fractions):
    f, theta = case
    assume(theta @ theta > 1e-6)
    steps, convexities, squares = [], [], [theta @ theta]
    for fraction in fractions:
        mean = f.mean_hessian(theta, torch.zeros_like(theta), 2 * (1 - NODES))
        convexities.append((theta @ mean @ theta / (theta @ theta)).item())
        steps.append(fraction / max(lipschitz_along_the_step(f, theta).item(), convexities[-1]))
        theta = theta - steps[-1] * f.gradient(theta)
        squares.append(theta @ theta)
    bounds = gradient_descent_bound(steps, convexities, squares[0].sqrt().item())
    assert all(square <= bound * (1 + 1e-6) + 1e-12 for square, bound in zip(squares, bounds, strict=True))


@pytest.mark.claim("Mean curvature along the path", verdict="holds")
@instances
@given(st.booleans().flatmap(functions), st.floats(0, 3))
def test_one_step_is_that_of_the_quadratic_with_the_mean_hessian(case, relative_step):
    f, theta = case
    mean, step = f.mean_hessian(theta, torch.zeros_like(theta), torch.ones_like(NODES)), relative_step / f.smoothness()
    after, norm = theta - step * f.gradient(theta), torch.linalg.vector_norm
    assert norm(after - (theta - step * (mean @ theta))) <= 1e-9 * norm(theta)
    ends = torch.linalg.eigvalsh(mean)[[0, -1]]
    assert norm(after) <= (1 - step * ends).abs().max() * norm(theta) + 1e-9 * norm(theta)

"""One wide hidden layer of ReLUs as a series of powers, and bounds on its smallest eigenvalue."""

import math

import pytest
import torch
from gnbook.deep_nonlinear.duals import leaky_relu
from gnbook.deep_nonlinear.wide_limit import wide_kernel
from hypothesis import given
from hypothesis import strategies as st

from tests.gnbook.deep_nonlinear.wide_helpers import on_a_sphere
from tests.strategies import instances, seeds

DEGREES = 200


def kernel(x, factors=(1, 1)):
    return wide_kernel(x, leaky_relu(0.0), factors, gain=2**0.5)


def relu_squares(degrees):
    """Squares of the Hermite coefficients of the ReLU: 1 / (2 pi), 1 / 4, and ((k - 3)!!)^2 / (2 pi k!) for even k."""
    squares, even = [1 / (2 * math.pi), 1 / 4], 1 / (4 * math.pi)
    for k in range(2, degrees):
        squares.append(0.0 if k % 2 else even)
        even *= 1.0 if k % 2 else (k - 1) ** 2 / ((k + 1) * (k + 2))  # from degree k to k + 2
    return torch.tensor(squares[:degrees], dtype=torch.float64)


def power_floors(x, degrees=DEGREES):
    """The share of each power of the correlations, at its smallest eigenvalue; the last is for all higher ones too."""
    squares = x.square().sum(1).mean()
    correlations = (x @ x.mT / squares).fill_diagonal_(1.0)
    smallest = torch.linalg.eigvalsh(correlations ** torch.arange(degrees)[:, None, None])[:, 0].clamp_min(0.0)
    weights = relu_squares(degrees) * (1 + torch.arange(degrees))
    weights[-1] = 1 - weights[:-1].sum()  # all of them add up to E (z_+)^2 and the mean of its squared slope
    return 4 / x.shape[1] * squares * weights * smallest


def bottom(matrix):
    return torch.linalg.eigvalsh(matrix)[0].item()


@pytest.mark.claim("Powers of the correlations", verdict="holds")
@instances
@given(seeds, st.integers(2, 6), st.integers(2, 5))
def test_the_kernel_is_the_series_of_powers(seed, n, d):
    x = on_a_sphere(n, d, seed)
    correlations = (x @ x.mT / d).fill_diagonal_(1.0)
    weights = 4 * relu_squares(4000) * (1 + torch.arange(4000))
    found = (weights[:, None, None] * correlations ** torch.arange(4000)[:, None, None]).sum(0)
    tail = 4 - float(weights.sum())  # on the diagonal; elsewhere no more
    assert ((found - kernel(x)).abs() <= tail + 1e-9).all() and tail < 0.08


@pytest.mark.claim("Powers of the correlations", verdict="holds")
@instances
@given(seeds, st.integers(1, 12), st.integers(1, 6), st.integers(1, 60))
def test_no_samples_fall_below_the_floors_of_powers(seed, n, d, degrees):
    x = on_a_sphere(n, d, seed)
    floors = power_floors(x, degrees)
    assert (floors >= 0).all() and float(floors.sum()) <= bottom(kernel(x)) + 1e-9
    assert float(power_floors(x, degrees + 5).sum()) >= float(floors.sum()) - 1e-9  # more degrees say more


@pytest.mark.claim("Close samples", verdict="holds")
@pytest.mark.parametrize("theta", [1e-3, 1e-2, 1e-1, 1.0, 1.97, 1.98, 2.5, 3.1])
def test_two_samples(theta):
    x = torch.tensor([[1.0, 0.0], [math.cos(theta), math.sin(theta)]]).double()
    between = (math.sin(theta) + 2 * (math.pi - theta) * math.cos(theta)) / math.pi
    assert (between > 0) == (theta < 1.976)
    exact = 2 - abs(between)
    assert bottom(kernel(x)) == pytest.approx(exact, abs=1e-7)  # the root of rounding, as an angle of zero is
    if theta <= 0.1:
        assert exact / theta == pytest.approx(1 / math.pi, abs=1.1 * theta)

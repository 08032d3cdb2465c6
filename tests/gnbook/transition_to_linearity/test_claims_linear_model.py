"""Descent of a network and of its linear model: how far they can part, given the Hessians along the way."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.gnbook.transition_to_linearity.helpers import SLACK, TINY
from tests.strategies import gaussian, instances, seeds

CURVED = 4 / (3 * math.sqrt(3))  # the largest second derivative of tanh
SHARES = st.sampled_from([1e-3, 0.5, 1.0, 2.0])  # of 1 / lambda_max; at 2 the linear model is barely stable


def parted(f, w, y, rate, steps):
    """Step by step: how far outputs and the linear model are apart, the bound over that on the Hessian, and weights."""
    jacobian, start, n = torch.func.jacrev(f)(w), w, len(y)
    kernel = jacobian @ jacobian.mT / n
    linear, path, total = f(w) - y, 0.0, 0.0
    largest = torch.linalg.matrix_norm(jacobian, 2).item()
    found = []
    for _ in range(steps):
        residual = f(w) - y
        step = -rate / n * torch.func.vjp(f, w)[1](residual)[0]
        total += rate / n * largest * path * residual.norm().item()
        w, path, linear = w + step, path + step.norm().item(), linear - rate * kernel @ linear
        found.append(((f(w) - y - linear).norm().item(), path**2 / 2 + total, w))
    assert (w - start).norm() <= path * SLACK
    return found


def stable(f, w, n):
    return n / torch.linalg.matrix_norm(torch.func.jacrev(f)(w), 2).item() ** 2


def network(seed, d, m, n, k, scale):
    """A network of one hidden layer of m units of which the first weights move, and a bound on its second derivative.

    As a function of a change u of these weights it has the second derivative `V (tanh'' * X u * X u)` for each sample.
    """
    x, v, w = gaussian(seed, n, d), gaussian(seed + 1, k, m) / m**0.5, scale * gaussian(seed + 2, m * d)

    def f(w):
        return (torch.tanh(x @ w.view(m, d).mT) @ v.mT).flatten()

    # of sample i: |V| max |x_i u_j| |X u|, at most |V| |x_i|^2 for unit vectors u
    largest = torch.linalg.matrix_norm(v, 2) * (x.square().sum(1) ** 2).sum().sqrt()
    return f, w, CURVED * largest.item()


@pytest.mark.claim("Descent of the linear model", verdict="holds")
@instances
@given(
    seeds,
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 2),
    st.sampled_from([0.0, 1.0, 5.0]),
    SHARES,
    st.sampled_from([0.1, 1.0, 30.0]),
)
def test_network_and_linear_model_part_no_further_than_hessians_allow(seed, d, m, n, k, scale, share, far):
    f, w, bound = network(seed, d, m, n, k, scale)
    y = far * gaussian(seed + 3, n * k)
    rate = share * stable(f, w, n * k)
    for apart, over, _ in parted(f, w, y, rate, 10):
        assert apart <= bound * over * SLACK + TINY * (1 + far)
    move = far * gaussian(seed + 4, len(w))
    change = torch.func.jacrev(f)(w) @ move
    assert (f(w + move) - f(w) - change).norm() <= SLACK * bound / 2 * move.square().sum() + TINY

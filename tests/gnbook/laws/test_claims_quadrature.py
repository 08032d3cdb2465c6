"""The loss of gradient descent between the two rules of the Lanczos process."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gnlib.eigen.quadrature import Lanczos


def rules(values, residual, products, low, high):
    """Return Gauss's rule and the one with both ends."""
    matrix = torch.diag(torch.from_numpy(values))
    process = Lanczos(lambda v: matrix @ v, torch.from_numpy(residual))
    for _ in range(products):
        process.step()
    return process.gauss(), process.lobatto(low, high)


def left(rule, rate, steps):
    return rule.weights @ (1 - rate * rule.nodes) ** (2 * steps)


@pytest.mark.claim("The loss between two rules", verdict="holds")
@given(
    seed=st.integers(0, 10**6),
    size=st.integers(3, 40),
    decades=st.floats(0, 6),
    zeros=st.integers(0, 2),
    factor=st.floats(0.01, 2.5),
    products=st.integers(1, 8),
    steps=st.integers(0, 200),
)
def test_the_loss_lies_between_the_two_rules(seed, size, decades, zeros, factor, products, steps):
    """At rates at which it grows, too; spectra over six decades, and singular ones."""
    rng = np.random.default_rng(seed)
    values = 10 ** -rng.uniform(0, decades, size)
    values[:zeros] = 0
    residual, high = rng.standard_normal(size), values.max() * rng.uniform(1.0001, 2)
    rate = factor / values.max()
    exact = residual**2 @ (1 - rate * values) ** (2 * steps)
    lower, upper = (left(rule, rate, steps) for rule in rules(values, residual, products, -1e-9, high))
    rounding = 1e-9 * (exact + residual @ residual)
    assert lower <= exact + rounding and exact <= upper + rounding
    if 2 * steps < 2 * products:
        assert lower == pytest.approx(exact, rel=1e-7) == pytest.approx(upper, rel=1e-7)


@pytest.mark.claim("The loss between two rules", verdict="holds")
def test_an_upper_end_below_the_largest_eigenvalue_is_no_bound():
    values, residual = np.array([0.0, 1.0, 4.0]), np.ones(3)
    _, rule = rules(values, residual, 1, 0.0, 2.0)
    assert left(rule, 1, 2) == pytest.approx(3)
    assert residual @ (1 - values) ** 4 == 82

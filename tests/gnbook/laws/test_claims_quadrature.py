"""The loss of gradient descent between the two rules of the Lanczos process."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from gnlib.eigen.quadrature import Lanczos

ANY = dict(  # spectra over six decades, and singular ones
    seed=st.integers(0, 10**6),
    size=st.integers(3, 40),
    decades=st.floats(0, 6),
    zeros=st.integers(0, 2),
    products=st.integers(1, 8),
)


def rules(values, residual, products, low, high):
    """Return Gauss's rule and the one with both ends."""
    process = after(torch.diag(torch.from_numpy(values)), torch.from_numpy(residual), products)
    return process.gauss(), process.lobatto(low, high)


def after(matrix, start, products):
    process = Lanczos(lambda v: matrix @ v, start)
    for _ in range(products):
        process.step()
    return process


def left(rule, rate, steps):
    return rule.weights @ (1 - rate * rule.nodes) ** (2 * steps)


@pytest.mark.claim("The loss between two rules", verdict="holds")
@given(**ANY, factor=st.floats(0.01, 2.5), steps=st.integers(0, 200))
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


@pytest.mark.claim("The same rules from the gradient", verdict="holds")
@pytest.mark.parametrize("shape", [(30, 50, 30), (50, 20, 20), (40, 40, 25)])
@pytest.mark.parametrize("products", [4, 12, 60])
def test_the_rules_of_a_residual_from_its_gradient(shape, products):
    """One product sooner, and also where the process ends."""
    n, p, rank = shape
    generator = torch.Generator().manual_seed(1)
    draw = [torch.randn(*size, generator=generator, dtype=torch.float64) for size in ((n, rank), (rank, p), (n,))]
    j, r = draw[0] @ draw[1] / n**0.5, draw[2]
    outputs = after(j @ j.mT / n, r, products)
    parameters = after(j.mT @ j / n, j.mT @ r / n, products - 1)
    assert outputs.exhausted == parameters.exhausted == (products == 60)
    own = parameters.jacobi
    divided, high = own._replace(mass=n * own.mass).divided(float(r @ r)), 1.1 * float(torch.linalg.norm(j, 2)) ** 2 / n
    for rate in (0.5 / high, 1 / high):
        for steps in (1, 30, 1000):
            pairs = [(outputs.gauss(), divided.gauss())]
            if products < 60:
                pairs.append((outputs.lobatto(-1e-12, high), divided.lobatto(-1e-12, high)))
            for one, other in pairs:
                assert left(other, rate, steps) == pytest.approx(left(one, rate, steps), rel=1e-6)


@pytest.mark.claim("The number of eigenvalues below a value", verdict="holds")
@given(**ANY, at=st.floats(-0.1, 1.2))
def test_the_share_below_a_value_lies_between_its_bounds(seed, size, decades, zeros, products, at):
    rng = np.random.default_rng(seed)
    values = 10 ** -rng.uniform(0, decades, size)
    values[:zeros] = 0
    signs = rng.choice([-1.0, 1.0], size)
    process = after(torch.diag(torch.from_numpy(values)), torch.from_numpy(signs), products)
    assume(np.abs(values - at).min() > 1e-9)
    known = process.jacobi
    low, high = known.below(at)
    assert low - 1e-6 * size <= (values < at).sum() <= high + 1e-6 * size
    assert high - low <= (1e-6 if process.exhausted else 1) * size * (1 + 1e-12)

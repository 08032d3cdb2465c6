"""Rules from the Lanczos process: exact for polynomials, on either side of the integral, to the end of the process."""

import numpy as np
import pytest
import torch

from gnlib.eigen.quadrature import Lanczos

GENERATOR = torch.Generator()


def measure(size, rank, seed):
    """Return a matrix of this rank, a vector, and the measure of the vector on the eigenvalues."""
    GENERATOR.manual_seed(seed)
    factor = torch.randn(size, rank, generator=GENERATOR, dtype=torch.float64)
    vector = torch.randn(size, generator=GENERATOR, dtype=torch.float64)
    values, vectors = torch.linalg.eigh(factor @ factor.mT / size)
    return factor @ factor.mT / size, vector, values.clamp_min(0).numpy(), (vectors.mT @ vector).square().numpy()


def process(matrix, vector, steps):
    found = Lanczos(lambda v: matrix @ v, vector)
    for _ in range(steps):
        found.step()
    return found


def integral(rule, function):
    return rule.weights @ function(rule.nodes)


@pytest.mark.parametrize("steps", [1, 2, 5, 9])
@pytest.mark.parametrize("seed", range(4))
def test_polynomials_are_exact_up_to_the_degree_of_each_rule(steps, seed):
    matrix, vector, values, weights = measure(30, 30, seed)
    found = process(matrix, vector, steps)
    for rule in (found.gauss(), found.lobatto(0.0, 1.01 * values[-1])):
        assert rule.weights.min() > 0
        for power in range(2 * steps):
            exact = weights @ values**power
            assert integral(rule, lambda s, power=power: s**power) == pytest.approx(exact, rel=1e-9)
    beyond = weights @ values ** (2 * steps)
    below, above = (integral(rule, lambda s: s ** (2 * steps)) for rule in (found.gauss(), rule))
    assert below < beyond < above


@pytest.mark.parametrize("rank", [40, 15])
@pytest.mark.parametrize("seed", range(5))
def test_powers_lie_between_the_rules(rank, seed):
    """At rates up to two over the largest eigenvalue, and the more products, the nearer."""
    matrix, vector, values, weights = measure(40, rank, seed)
    high = 1.01 * values[-1]
    for rate in (0.3 / high, 1 / high, 1.8 / high):
        for steps in (1, 10, 300):

            def left(values, rate=rate, steps=steps):
                return (1 - rate * values) ** (2 * steps)

            exact, last = weights @ left(values), np.inf
            found = Lanczos(lambda v: matrix @ v, vector)
            for _ in range(12):
                found.step()
                rules = found.gauss(), found.lobatto(-1e-12 * high, high)
                lower, upper = (integral(rule, left) for rule in rules)
                assert lower <= exact * (1 + 1e-10) and exact <= upper * (1 + 1e-10)
                assert upper - lower <= last * (1 + 1e-9) + 1e-12 * exact
                last = upper - lower


@pytest.mark.parametrize("rank", [6, 1])
def test_at_the_end_of_the_process_the_rule_is_exact_and_no_more_products_are_taken(rank):
    matrix, vector, values, weights = measure(25, rank, 3)
    found = process(matrix, vector, 25)
    assert found.exhausted and found.steps == rank + 1  # one for what the matrix takes to zero
    for rule in (found.gauss(), found.lobatto(0.0, 2 * values[-1])):
        assert integral(rule, np.exp) == pytest.approx(weights @ np.exp(values), rel=1e-12)


def test_no_eigenvalue_is_found_twice():
    """A large one apart would come back without the second orthogonalisation."""
    values = torch.cat([torch.linspace(0, 1, 300).double(), torch.tensor([1e8]).double()])
    found = process(torch.diag(values), torch.ones(301).double(), 80)
    assert (found.gauss().nodes > 2).sum() == 1


@pytest.mark.parametrize("steps", [1, 3, 8])
@pytest.mark.parametrize("rank", [30, 12])
def test_a_node_at_an_end_is_exact_one_degree_further_and_weighs_as_much_as_can_be(steps, rank):
    matrix, vector, values, weights = measure(30, rank, 0)
    rule = process(matrix, vector, steps).jacobi.radau(-1e-12)
    for power in range(2 * steps + 1):
        assert integral(rule, lambda s, power=power: s**power) == pytest.approx(weights @ values**power, rel=1e-9)
    zeros = weights[values < 1e-9].sum()
    assert np.abs(rule.nodes).min() < 1e-11 and rule.weights[np.abs(rule.nodes).argmin()] >= zeros - 1e-9
    if rank < 30 and steps == 8:
        assert rule.weights[np.abs(rule.nodes).argmin()] == pytest.approx(zeros, rel=0.05)

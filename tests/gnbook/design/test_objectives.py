"""Objectives, their gradients and the search for gains, against differences of values, integration and grids."""

import copy
import itertools

import pytest
import torch
from gnbook.design.layers import layers_of
from gnbook.design.objectives import _Integral, certificate, edge, log_condition, log_time
from gnbook.design.search import search, with_gains

from tests.gnbook.design.helpers import chain, condition, kernel
from tests.strategies import exact, gaussian, orthogonal

X, Y = gaussian(1, 4, 6), gaussian(2, 4, 2)
GOAL = 0.02


@pytest.fixture(scope="module", params=[False, True], ids=["K", "K_P"])
def layers(request):
    return layers_of(chain([6, 12, 9, 2], bias=True, seed=3), X, preconditioned=request.param)


def slope(objective, z):
    z = z.clone().requires_grad_()
    return torch.autograd.grad(objective(z), z)[0]


def differences(objective, z, step=1e-5):
    steps = step * torch.eye(len(z), dtype=torch.float64)
    return torch.stack([(objective(z + s) - objective(z - s)) / (2 * step) for s in steps])


def test_gradients_are_those_of_differences(layers):
    z = 0.4 * gaussian(9, 3)
    objectives = [
        lambda z: log_condition(layers.kernel(z)),
        lambda z: log_time(layers, z, Y, GOAL)[0],
        lambda z: log_time(layers, z, Y, GOAL)[1].sum(),
        lambda z: edge(log_time(layers, z, Y, GOAL)[1]),
    ]
    for objective in objectives:
        expected = differences(objective, z)
        torch.testing.assert_close(slope(objective, z), expected, rtol=1e-5, atol=1e-6)
        assert expected.abs().max() > 1e-2


def test_the_time_and_the_way_are_those_of_the_flow_in_small_steps(layers):
    z = 0.4 * gaussian(9, 3)
    time, moved = log_time(layers, z, Y, GOAL)
    kernel, residual, count = layers.kernel(z), (layers.scaled(z) - Y).flatten(), 20_000
    largest = torch.linalg.eigvalsh(kernel)[-1]
    step, sums = time.exp().item() / count / largest, torch.zeros_like(residual)
    for _ in range(count):
        middle = residual - step / 2 * kernel @ residual
        sums, residual = sums + step * middle, residual - step * kernel @ middle
    assert (residual.square().sum() / (2 * len(Y))).item() == pytest.approx(GOAL, rel=1e-5)
    assert moved.tolist() == pytest.approx(layers.moved(z, sums).tolist(), rel=1e-5)


def test_the_derivative_where_eigenvalues_coincide():
    """The integral of a flow as a function of a matrix with equal eigenvalues, two of them zero."""
    basis, values = orthogonal(4, 5), exact([0.0, 0.0, 0.5, 0.5, 1.0])
    matrix, vector, weights, change = basis * values @ basis.mT, gaussian(5, 5), gaussian(6, 5), gaussian(7, 5, 5)
    change = change @ change.mT

    def value(matrix):
        series = torch.linalg.matrix_exp(-torch.cat([torch.cat([matrix, -torch.eye(5)], 1), torch.zeros(5, 10)]) * 3.0)
        return weights @ series[:5, 5:] @ vector  # the integral, as a block of one exponential

    matrix.requires_grad_()
    sums = _Integral.apply(matrix, vector, *torch.linalg.eigh(matrix.detach()), 3.0)
    assert (weights @ sums).item() == pytest.approx(value(matrix.detach()).item(), rel=1e-9)
    (found,) = torch.autograd.grad(weights @ sums, matrix)
    up, down = (value(matrix.detach() + s * 1e-6 * change) for s in (1, -1))
    assert (found * change).sum().item() == pytest.approx((up - down).item() / 2e-6, rel=1e-6)


def test_no_gains_are_below_the_certificate_which_is_near(layers):
    alone = layers_of(chain([6, 12, 9, 2], seed=3), X)
    found = search(lambda z: log_condition(alone.kernel(z)), 3)
    least, best = certificate(alone, found.gains.log()), condition(alone.kernel(found.gains.log()))
    assert 0.75 * best < least <= best
    for seed in range(20):
        assert condition(layers.kernel(gaussian(seed, 3))) >= certificate(layers, gaussian(seed + 1, 3))


def test_no_gains_on_a_grid_are_better():
    network = chain([6, 12, 9, 2], seed=3)
    layers = layers_of(network, X)
    found = search(lambda z: log_condition(layers.kernel(z)), 3)
    steps = torch.linspace(-1.5, 1.5, 9, dtype=torch.float64)
    grid = [log_condition(layers.kernel(exact([a, b, 0]))).item() for a, b in itertools.product(steps, steps)]
    assert found.end <= min(grid) + 1e-6 and found.end < log_condition(layers.parts.sum(0)).item() - 0.1
    better = with_gains(copy.deepcopy(network), found.gains)
    assert condition(kernel(better, X)) < 0.9 * condition(kernel(network, X))

"""Kernels under gains and preconditioners against matrices that are formed whole, and the search for gains."""

import copy
import itertools
from functools import partial

import pytest
import torch
from gnbook.design.families import FAMILIES, build
from gnbook.design.layers import FLOOR, layers_of, weights_of
from gnbook.design.objectives import _Integral, certificate, edge, log_condition, log_time
from gnbook.design.preconditioners import diagonal, divided_kernel, divided_training, features, plain, quality
from gnbook.design.search import search, with_gains
from gnbook.shared.networks import initialise, kaiming
from torch import nn

from tests.gnbook.design.helpers import chain, condition, jacobians, kernel
from tests.strategies import exact, gaussian, orthogonal

X, Y = gaussian(1, 4, 6), gaussian(2, 4, 2)
GOAL = 0.02


@pytest.fixture(scope="module", params=[False, True], ids=["K", "K_P"])
def layers(request):
    return layers_of(chain([6, 12, 9, 2], bias=True, seed=3), X, preconditioned=request.param)


def test_gradients_are_those_of_differences(layers):
    z = (0.4 * gaussian(9, 3)).requires_grad_()
    objectives = [lambda z: log_condition(layers.kernel(z)), lambda z: log_time(layers, z, Y, GOAL)[0]]
    objectives += [lambda z, of=of: of(log_time(layers, z, Y, GOAL)[1]) for of in (torch.sum, edge)]
    for objective in objectives:
        assert torch.autograd.gradcheck(objective, z, eps=1e-5, rtol=1e-5, atol=1e-6)
        assert torch.autograd.grad(objective(z), z)[0].abs().max() > 1e-2


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


def test_no_gains_on_a_grid_are_better():
    network = chain([6, 12, 9, 2], seed=3)
    layers = layers_of(network, X)
    gains, end = search(lambda z: log_condition(layers.kernel(z)), 3)
    steps = torch.linspace(-1.5, 1.5, 9, dtype=torch.float64)
    grid = [log_condition(layers.kernel(exact([a, b, 0]))).item() for a, b in itertools.product(steps, steps)]
    assert end <= min(grid) + 1e-6 and end < log_condition(layers.parts.sum(0)).item() - 0.1
    better = condition(kernel(with_gains(copy.deepcopy(network), gains), X))
    assert better < 0.9 * condition(kernel(network, X))
    assert 0.75 * better < certificate(layers, gains.log()) <= better * (1 + 1e-9)


PIXELS = gaussian(0, 5, 3 * 16 * 16).view(5, 3, 16, 16)


def started(family):
    return initialise(build(family, seed=0), kaiming, generator=torch.Generator().manual_seed(0))


def logarithms(network):
    return 0.7 * gaussian(3, len(weights_of(network)))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_kernel_of_every_family_under_gains(family):
    network = started(family)
    layers, z = layers_of(network, PIXELS), logarithms(network)
    expected = kernel(with_gains(copy.deepcopy(network), z.exp()), PIXELS)
    found = layers.kernel(z)
    assert (found - expected).norm() < 1e-5 * expected.norm()
    outputs = with_gains(copy.deepcopy(network), z.exp())(PIXELS)
    torch.testing.assert_close(layers.scaled(z), outputs.detach(), rtol=1e-5, atol=1e-8)


def preconditioned(network, x, power):
    """From the same floor, taken parameter by parameter."""
    total = 0
    for jacobian in jacobians(network, x).values():
        squares = jacobian.square().mean(0) * len(jacobian) / len(x)
        roots = squares.clamp_min(FLOOR**2 * squares.mean()).sqrt()
        total = total + (jacobian / roots**power) @ jacobian.mT / len(x)
    return total


def test_the_kernel_of_adam_under_gains():
    network, x = chain([4, 6, 5, 2], bias=True, seed=1), gaussian(5, 3, 4)
    layers, z = layers_of(network, x, preconditioned=True), logarithms(network)
    other = with_gains(copy.deepcopy(network), z.exp())
    torch.testing.assert_close(layers.kernel(z), preconditioned(other, x, 1), rtol=1e-9, atol=1e-9)
    sums = torch.einsum("i,ijk->jk", (layers.steps_exponents @ z).exp(), layers.steps)
    torch.testing.assert_close(sums, preconditioned(other, x, 2), rtol=1e-9, atol=1e-9)


def test_how_far_each_parameter_moves():
    network, x, c = chain([4, 6, 2], bias=True, seed=1), gaussian(5, 3, 4), gaussian(6, 6)
    layers, z = layers_of(network, x), logarithms(network)
    other = with_gains(copy.deepcopy(network), z.exp())
    moves = [(j.mT @ c / len(x)).square().sum().item() for j in jacobians(other, x).values()]
    sizes = [torch.linalg.svdvals(p)[0].item() ** 2 if p.ndim == 2 else 0 for p in other.parameters()]
    expected = [move / size if size else 0 for move, size in zip(moves, sizes, strict=True)]
    assert layers.moved(z, c).tolist() == pytest.approx(expected, rel=1e-9)
    assert expected[0] > 0 and expected[1] == 0  # a bias of zero has no size to compare with


class Skip(nn.Module):
    def __init__(self):
        super().__init__()
        self.branch = chain([4, 4])

    def forward(self, x):
        return x + self.branch(x)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "network",
    [
        chain([4, 6, 2], nn.Tanh),
        nn.Sequential(Skip(), *chain([4, 2])),
        nn.Sequential(nn.Linear(4, 3), nn.ReLU()).double(),
    ],
    ids=["tanh", "skip", "biases"],
)
def test_a_network_that_is_not_homogeneous(network):
    with pytest.raises(ValueError, match=r"The network is not homogeneous in .*weight: doubled weights"):
        layers_of(network, gaussian(0, 5, 4))


SAMPLES = gaussian(1, 5, 4)
DAMPED = partial(features, damping=1e-3)


@pytest.fixture
def network():
    return chain([4, 6, 3, 2], bias=True, seed=2)


def test_the_diagonal_is_that_of_the_whole_matrix(network):
    jacobian = torch.cat([*jacobians(network, SAMPLES).values()], 1)
    roots = (jacobian.mT @ jacobian / 5).diagonal().sqrt()
    used = roots > 0
    expected = (jacobian[:, used] / roots[used]) @ jacobian[:, used].mT / 5
    found = divided_kernel(network, SAMPLES, diagonal(network, SAMPLES))
    assert (found - expected).norm() < 0.02 * expected.norm()  # there is a floor


def test_features_divide_each_layer_by_their_second_moment(network):
    inputs, expected, jacobian = SAMPLES, 0, jacobians(network, SAMPLES)
    for index in (0, 2, 4):
        augmented = torch.cat([inputs, torch.ones(5, 1).double()], 1)
        moment = augmented.mT @ augmented / 5
        moment = moment + 0.3 * moment.trace() / len(moment) * torch.eye(len(moment))
        whole = torch.kron(torch.eye(network[index].out_features).double(), torch.linalg.inv(moment).contiguous())
        weights, bias = (jacobian[f"{index}.{part}"] for part in ("weight", "bias"))
        joined = torch.cat([weights.unflatten(1, (len(bias[0]), -1)), bias[:, :, None]], 2).flatten(1)
        expected = expected + joined @ whole @ joined.mT / 5
        inputs = network[index](inputs).relu().detach()
    torch.testing.assert_close(
        divided_kernel(network, SAMPLES, features(network, SAMPLES, damping=0.3)), expected, rtol=1e-8, atol=1e-10
    )
    assert not any(module._forward_pre_hooks for module in network.modules())


def test_quality_is_a_condition_number_and_a_time(network):
    matrix, residual = kernel(chain([4, 30, 2]), SAMPLES[:3]), gaussian(4, 3, 2)
    kappa, time = quality(matrix, residual, 0.1)
    assert kappa == pytest.approx(condition(matrix), rel=1e-9)
    flow = torch.linalg.matrix_exp(-matrix / torch.linalg.eigvalsh(matrix)[-1] * time)
    assert ((flow @ residual.flatten()).square().sum() / 6).item() == pytest.approx(0.1)


@pytest.mark.parametrize("way", [plain, diagonal, DAMPED])
def test_a_small_step_moves_the_outputs_by_the_divided_kernel(network, way):
    y, divide, rate = gaussian(5, 5, 2), way(network, SAMPLES), 1e-6
    residual = (network(SAMPLES) - y).detach()
    moved = rate * divided_kernel(network, SAMPLES, divide) @ residual.flatten()
    before, after = divided_training(network, SAMPLES, y, divide, rate=rate, until=0.0, most=1).losses
    assert (before - after) / rate == pytest.approx((residual.flatten() @ moved / (5 * rate)).item(), rel=1e-3)

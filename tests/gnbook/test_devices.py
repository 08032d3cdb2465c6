"""Results of the rooms are on the device of their arguments, whatever the default device is."""

from functools import partial

import pytest
import torch
from gnbook.adding_the_identity import singular_values as paths
from gnbook.batch_normalization import bounds as bn_bounds
from gnbook.batch_normalization import gauss_newton as bn
from gnbook.convolution import bounds as convolution_bounds
from gnbook.convolution import gauss_newton as convolution
from gnbook.convolution import networks as filters
from gnbook.cost.race import LowerEnd
from gnbook.deep_nonlinear.bound import chain_bound, schur_ends
from gnbook.deep_nonlinear.chain import Skip, kernel, layers_of, random_chain
from gnbook.deep_nonlinear.head import head_floor
from gnbook.design import initialisations as beginnings
from gnbook.design import preconditioners
from gnbook.functional_hessian import hessian as functional
from gnbook.gauss_newton.bounds import gradient_descent_bound
from gnbook.piecewise_linear_maps import one_layer
from gnbook.random_layers import bounds as layers
from gnbook.random_layers import matrices as random
from gnbook.shared import hessian, local_affine, piecewise_linear, skips, tuning
from gnbook.shared.epochs import train_epochs
from gnbook.shared.lanczos import symmetric_ends
from gnbook.shared.networks import xavier_weights
from gnbook.shared.training import one_hot
from gnbook.transition_to_linearity import ball, linearity
from gnbook.transition_to_linearity.tensor_norm import norm_221
from gnbook.transition_to_linearity.wide_network import WideNetwork, normal_weights
from gnbook.when_the_kernel_moves import clusters, heads, networks
from gnbook.when_the_kernel_moves.descent import descend
from torch import nn

from gnlib import SecondMoment, linear_gauss_newton
from tests.devices import assert_made_where_its_arguments_are, assert_same, default_device
from tests.oracles import network, normal, with_spectrum


def seeded(make):
    """A network in double precision, drawn from torch's global generator."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make().double()


def drawn(*widths, **options):
    return normal_weights(widths, generator=torch.Generator().manual_seed(0), **options)


def trained(nets, x, labels, loss):
    optimizer = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    rows = train_epochs(nets, x, one_hot(labels, 3), optimizer, seeds=[0, 1], epochs=2, batch_size=4, loss=loss)
    return rows, [list(net.parameters()) for net in nets]


def tuned(net, x, y, optimizer):
    goals = {"a half": tuning.LOSSES["mse"](net(x), y).item() / 2}
    return tuning.tune(net, tuning.Setting(x, y, "mse", optimizer, goals, horizon=6, batch_size=4), 0.1).curves


def raced(operand, largest):
    end = (
        LowerEnd.of_gram(operand, 2, largest)
        if isinstance(operand, torch.Tensor)
        else LowerEnd.of_sum(operand, largest)
    )
    return [find() for find in (end.ours, end.scipy, end.torch)]


def raced_sum(weights, moment):
    operator = linear_gauss_newton(weights, moment)
    return raced(operator, torch.linalg.eigvalsh(operator.dense())[-1].item())


def in_a_ball(net, x):
    start = ball.measured_start(net, x)
    return start, linearity.layered_bound(ball.ball_norms(start, ball.TANH, 1.0), 5)


def of_chain(net, x):
    layers = layers_of(net, x)
    return layers, kernel(layers), schur_ends(layers), chain_bound(layers), head_floor(net, x, net[-1])


def of_design(net, x, y):
    """Networks by each initialisation, and the kernels and trainings beside them."""
    data = beginnings.Data(x, y)
    start = beginnings.initialised(net, "Kaiming", data, seed=0)
    made = [beginnings.initialised(net, name, data, seed=0)(x) for name in beginnings.UNTUNED]
    gains = [find(start, data) for find in beginnings.SEARCHED.values()]
    damped = partial(preconditioners.features, damping=0.1)
    ways = [way(start, x) for way in (preconditioners.plain, preconditioners.diagonal, damped)]
    kernels = [preconditioners.divided_kernel(start, x, divide) for divide in ways]
    train = partial(preconditioners.divided_training, start, x, y, rate=0.01, until=0.0, most=2)
    trained = [train(divide=divide).losses for divide in ways]
    return made, gains, kernels, trained


def of_kernel(net, x, head):
    """The kernels of networks and of their outputs, before and after descent."""
    targets = torch.zeros_like(net(x).detach())
    targets[..., 0] = 1
    ended = descend(net, x, targets, head, most_steps=5)
    return net.kernel(x), heads.output_kernel(net.kernel(x), head.slopes(net(x))), [run.rows for run in ended]


X, Y, SQUARE = normal(12, 4, seed=1), normal(12, 3, seed=2), normal(5, 5, seed=3)
MOMENT, LABELS = X.mT @ X / len(X), torch.arange(12) % 3
DEEP, PAIR = network((4, 6, 5, 3), seed=4), network((4, 6, 3), seed=5)
LINES, SQUARES = normal(20, 1, 9, seed=10), normal(20, 2, 6, 6, seed=11)
ON_LINES, ON_SQUARES = [normal(4, 1, 3, seed=12), normal(2, 4, 2, seed=13)], [normal(3, 2, 2, 2, seed=14)]
KINKED = [piecewise_linear.Layer(normal(o, i, seed=o), normal(o, seed=i), 0.1) for i, o in ((2, 3), (3, 4), (4, 4))]
TANH = seeded(lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1)))
RELU = seeded(lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3, bias=False)))
WITH_SKIP = nn.Sequential(nn.Linear(4, 5), Skip(nn.Sequential(nn.Tanh(), nn.Linear(5, 5))), nn.Linear(5, 3))
WIDE = WideNetwork(drawn(4, 5, 5, 1))
STACKED = networks.shallow(6, seeds=[0, 1])

CASES = {
    "adding_the_identity": [
        (paths.derivatives, SQUARE),
        (paths.one_sided_derivatives, torch.zeros(2, 2, dtype=torch.float64)),
        (paths.follow, torch.diag(torch.tensor([-0.4, -0.2, 0.3]).double()), torch.linspace(0, 1, 5).double()),
    ],
    "batch_normalization": [
        (partial(bn.batch_norm_gauss_newton, affine=True, eps=1e-5), PAIR, X),
        (partial(bn_bounds.sharp_batch_norm, affine=True), PAIR, X),
        (bn_bounds.batch_norm_limit, SecondMoment.from_data(X - X.mean(0))),
    ],
    "convolution": [
        (convolution.convolution_gauss_newton, ON_LINES, LINES),
        (convolution.convolution_gauss_newton, ON_LINES, LINES, 2, 1),
        (convolution.convolution_gauss_newton, [normal(1, 1, 3, seed=1), normal(3, 1, 2, seed=2)], LINES),
        (convolution.path_moment, ON_SQUARES, SQUARES, 1, 1),
        (convolution_bounds.convolution_bound, ON_LINES, LINES),
        (convolution_bounds.sharp_convolution, ON_LINES, LINES),
        (filters.toeplitz, ON_SQUARES[0], (4, 5), 2, 1),
    ],
    "cost": [
        (raced, with_spectrum(range(1, 61), seed=1), 60.0),
        (raced_sum, network((20, 30, 30, 4), seed=1), torch.eye(20)),
    ],
    "deep_nonlinear": [(of_chain, WITH_SKIP.double(), X[:4]), (of_chain, RELU, X)],
    "design": [(of_design, seeded(lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))), X[:5], Y[:5])],
    "functional_hessian": [(functional.functional_hessian, DEEP, normal(3, 4, seed=15))],
    "gauss_newton": [(gradient_descent_bound, [0.5, 0.5], [1.0, 0.2])],
    "piecewise_linear_maps": [(one_layer.along_line, KINKED, 1, X[:, :2], normal(4, 3, seed=19))],
    "random_layers": [(layers.all_regions_of_branch, 0.1 * SQUARE, 0.1 * SQUARE)],
    "shared": [
        (hessian.hessian_ends, TANH, X[:1]),
        (lambda m, v: symmetric_ends(m.matmul, v, held=12), with_spectrum(range(40), seed=1), normal(40, seed=21)),
        (local_affine.local_affine, RELU, X[0]),
        (piecewise_linear.affine_products, KINKED, X[0, :2]),
        (skips.residual_bound, DEEP, MOMENT, 4.0),
        (trained, [RELU, RELU], X, LABELS, nn.functional.mse_loss),
    ],
    "transition_to_linearity": [
        (in_a_ball, WIDE, X[:1]),
        (linearity.layer_norms, WIDE, X[:1]),
        (lambda net, x: hessian.hessian_ends(net.on_its_range(x), x), WIDE, X[:1]),
        (WideNetwork.__call__, WideNetwork(drawn(2, 3, 1, filter_size=(3, 3), pixels=36), filter_size=(3, 3)), SQUARES),
        (norm_221, normal(3, 3, 20, seed=22)),
    ],
    "what_predicts_training": [(tuned, RELU, X, Y, "adam")],
    "when_the_kernel_moves": [
        (of_kernel, STACKED, normal(2, 5, 2, seed=23), heads.Softmax()),
        (of_kernel, STACKED, normal(2, 5, 2, seed=23), heads.Entrywise(heads.swish)),
    ],
}
ALL = [(room, case) for room, cases in CASES.items() for case in cases]


@pytest.mark.parametrize("case", [case for _, case in ALL], ids=[f"{room}-{i}" for i, (room, _) in enumerate(ALL)])
def test_tensors_are_made_on_the_device_of_the_arguments(case):
    assert_made_where_its_arguments_are(case)


def generator():
    return torch.Generator().manual_seed(0)


MAKERS = {
    "filters": lambda: filters.convolution_weights([1, 2, 1], [3, 3], generator=generator()),
    "Xavier weights": lambda: xavier_weights([4, 3, 2], generator=generator()),
    "weights of wide networks": lambda: drawn(4, 5, 1),
    "Gaussian matrices": lambda: random.draw(4, 3, generator=generator()),
    "uniform matrices": lambda: random.draw(4, 3, "uniform", generator=generator()),
    "clusters": lambda: clusters.three_clusters([0, 1]),
    "chains": lambda: list(random_chain([3, 4, 2], nn.ReLU, generator=generator()).parameters()),
    "stacked networks": lambda: list(networks.shallow(3, seeds=[0, 1]).parameters()),
    "bottlenecks": lambda: list(networks.bottleneck(5, 2, seeds=[0, 1]).parameters()),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_random_numbers_are_on_the_device_of_their_generator(make):
    expected = make()
    with default_device("meta"):
        found = make()
    assert_same(found, expected)

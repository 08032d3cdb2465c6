"""What is computed of a network at its start, against dense derivatives, and forecasts against trainings."""

import math

import numpy as np
import pytest
import torch
from gnbook.shared.training import half_squared_error
from gnbook.what_predicts_training.curvature import drift
from gnbook.what_predicts_training.forecasts import HORIZON, fewest_steps
from gnbook.what_predicts_training.predictors import Start
from gnbook.what_predicts_training.spectral import of_spectrum
from gnbook.what_predicts_training.zero_cost import chi_1, naswot, synflow, te_nas, zico
from torch import nn
from torch.nn import functional

from gnlib.jacobian.gram import gram_of
from gnlib.jacobian.passes import vjp
from gnlib.jacobian.trial import network_of, networks_of
from tests.gnlib.diagnosis.networks import train
from tests.strategies import derivatives, gaussian

N, K = 6, 3
LABELS = torch.tensor([0, 1, 2, 0, 1, 1])
TARGETS = gaussian(7, N * K).view(N, K)


LOSSES = {"mse": (half_squared_error, TARGETS), "cross_entropy": (functional.cross_entropy, LABELS)}
both = pytest.mark.parametrize("loss", [*LOSSES])


def seeded(*layers):
    torch.manual_seed(0)
    return nn.Sequential(*(layer() for layer in layers)).double()


def small(norm=nn.Identity):
    return seeded(lambda: nn.Linear(4, 12), norm, nn.Tanh, lambda: nn.Linear(12, K))


def inputs(width):
    return gaussian(1, N * width).view(N, width)


def draws():
    return torch.Generator().manual_seed(0)


def whole(net, x, loss):
    """Return gradient, Jacobian, Gauss-Newton matrix and Hessian of a loss, from dense derivatives."""
    function, y = LOSSES[loss]
    theta = nn.utils.parameters_to_vector(net.parameters()).detach()
    shapes = {name: p.shape for name, p in net.named_parameters()}

    def outputs(theta):
        parts = theta.split([shape.numel() for shape in shapes.values()])
        tensors = {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
        tensors |= {name: buffer.clone() for name, buffer in net.named_buffers()}
        return torch.func.functional_call(net, tensors, (x,)).flatten()

    def of_theta(theta):
        return function(outputs(theta).view(N, K), y)

    jacobian = torch.func.jacrev(outputs)(theta)
    second = torch.autograd.functional.hessian  # that of torch.func is off for the weights of BatchNorm
    curvature = second(lambda f: function(f.view(N, K), y), outputs(theta))
    gauss_newton = jacobian.mT @ curvature @ jacobian
    return torch.func.grad(of_theta)(theta), jacobian, gauss_newton, second(of_theta, theta)


def aligned(kernel, loss):
    targets = TARGETS if loss == "mse" else torch.eye(K, dtype=torch.float64)[LABELS]
    ideal = torch.outer(*[(targets - targets.mean(0)).flatten()] * 2)
    return ((kernel * ideal).sum() / kernel.norm() / ideal.norm()).item()


@both
@pytest.mark.parametrize("norm", [nn.Identity, lambda: nn.BatchNorm1d(12)], ids=["", "BatchNorm"])
def test_what_derivatives_of_the_whole_batch_say(loss, norm):
    net, x, (function, y) = small(norm), inputs(4), LOSSES[loss]
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    found = Start(net, x, y, loss).predictors([0.1], draws())
    assert net.training and all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    gradient, jacobian, matrix, hessian = whole(net, x, loss)
    outputs = net(x).detach().requires_grad_()
    initial = function(outputs, y)
    away = gradient + torch.where(gradient >= 0, 1e-5, -1e-5)
    kernel = jacobian @ jacobian.mT / N
    basis, values, _ = torch.linalg.svd(kernel)
    values = values[values > 1e-10 * values[0]]
    squares = (basis[:, : len(values)].mT @ torch.autograd.grad(initial, outputs)[0].flatten()).square()
    own = torch.linalg.eigvalsh(matrix)
    expected = {
        "gradient_norm": gradient.norm(),
        "initial_loss": initial,
        "largest": values[0],
        "trace_over_largest": values.sum() / values[0],
        "smallest": values[-1],
        "kappa": values[0] / values[-1],
        "weighted_residual": values[0] * (squares / values).sum() / squares.sum(),
    }
    assert {name: found[name] for name in expected} == pytest.approx(
        {name: value.item() for name, value in expected.items()}, rel=1e-9
    )
    quotient = ((gradient - hessian @ gradient) / away - 1).abs().mean().item()
    assert found["gradient_quotient"] == pytest.approx(quotient, rel=1e-6)
    assert found["kappa_loss"] == pytest.approx((own[-1] / own[own > 1e-10 * own[-1]][0]).item(), rel=1e-5)
    assert found["sharpness"] == pytest.approx(torch.linalg.eigvalsh(hessian)[-1].item(), rel=1e-3)
    assert found["alignment"] == pytest.approx(aligned(kernel, loss), rel=1e-9)


def test_a_spectrum_with_zeros():
    found = of_spectrum(torch.tensor([-1e-17, 0.0, 0.1, 0.4, 0.5], dtype=torch.float64))
    assert (found["kappa"], found["smallest"], found["largest"]) == (5.0, 0.1, 0.5)
    entropy = -sum(share * math.log(share) for share in (0.1, 0.4, 0.5))
    assert found["effective_rank"] == pytest.approx(math.exp(entropy), rel=1e-12)
    assert found["trace_over_largest"] == pytest.approx(2.0, rel=1e-12)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
def test_the_drift_is_the_derivative_of_the_kernel(scale):
    module = seeded(lambda: nn.Linear(3, 8), nn.Tanh, lambda: nn.Linear(8, 2))
    x, y = torch.randn(5, 3).double(), scale * torch.randn(5, 2).double()
    networks = networks_of(module, x)
    residual = module(x).detach() - y
    gradient, loss = vjp(networks, 4.0)(residual), float(residual.square().sum() / 10)
    found = drift(networks, gram_of(networks, 4.0), loss, gradient, 4.0)

    def kernel(parameters):
        jacobian = torch.func.jacrev(lambda p: torch.func.functional_call(module, p, x).flatten())(parameters)
        flat = torch.cat([j.flatten(1) for j in jacobian.values()], 1)
        return flat @ flat.mT / len(x)

    parameters = {name: p.detach() for name, p in module.named_parameters()}
    back = {name: -g for name, g in gradient.items()}
    value, velocity = torch.func.jvp(kernel, (parameters,), (back,))
    time = loss / sum(float(g.square().sum()) for g in gradient.values())
    assert found == pytest.approx(float(time * velocity.norm() / value.norm()), rel=0.05)


@both
@pytest.mark.parametrize("optimizer", ["descent", "momentum", "adam"])
def test_real_steps_are_those_of_torch(loss, optimizer):
    net, x, (function, y) = small(), inputs(4), LOSSES[loss]
    gradient, jacobian, matrix, _ = whole(net, x, loss)
    if optimizer == "adam":
        p = jacobian.square().sum(0).sqrt()
        p = p * gradient.norm() / p.norm()
        matrix = matrix / p.sqrt() / p.sqrt()[:, None]
    largest = torch.linalg.eigvalsh(matrix)[-1].item()
    found = Start(net, x, y, loss).after(20, optimizer)
    steps = {
        "descent": lambda: torch.optim.SGD(net.parameters(), lr=1 / largest),
        "momentum": lambda: torch.optim.SGD(net.parameters(), lr=1.9 / largest, momentum=0.9),
        "adam": lambda: torch.optim.Adam(net.parameters(), lr=19 / largest),
    }[optimizer]()
    losses = train(net, x, y, function, steps, 19)
    assert found["loss_after_20"] == pytest.approx(function(net(x), y).item() / losses[0], rel=1e-7)
    jacobian = whole(net, x, loss)[1]
    assert found["alignment_after_20"] == pytest.approx(aligned(jacobian @ jacobian.mT, loss), rel=1e-7)


def line(width):
    return seeded(lambda: nn.Linear(width, K, bias=False))


def descend(net, x, loss, rate, horizon, factors):
    """Return the losses of real steps, each parameter's gradient multiplied by a factor."""
    function, y = LOSSES[loss]
    weight, losses = net[0].weight.detach().clone().requires_grad_(), []
    for _ in range(horizon + 1):
        value = function(x @ weight.mT, y)
        losses.append(value.item())
        (gradient,) = torch.autograd.grad(value, weight)
        weight = (weight - rate * factors * gradient).detach().requires_grad_()
    return losses


def first(losses, goal):
    return next((t for t, loss in enumerate(losses) if loss <= goal), math.inf)


@both
@pytest.mark.parametrize("scaled", [False, True])
def test_forecasts_of_a_linear_network_are_its_training(loss, scaled):
    """Scaled by the root of the diagonal of G, for each output; the loss's own matrix has another."""
    x = inputs(8) * torch.logspace(-1, 1, 8, dtype=torch.float64) if scaled else inputs(8)
    net = line(8)
    start = Start(net, x, LOSSES[loss][1], loss)
    factors = 1 / x.square().mean(0).sqrt() if scaled else torch.ones(8).double()
    root = factors.sqrt().repeat(K)
    largest = torch.linalg.eigvalsh(root[:, None] * whole(net, x, loss)[2] * root)[-1].item()
    curves = [descend(net, x, loss, factor / largest, 400, factors) for factor in (1.0, 2.0, 4.0)]
    goals = [part * curves[0][0] for part in (2.0, 0.5, 0.1, 0.02)]
    expected = [min(first(curve, goal) for curve in curves) for goal in goals]
    assert expected[0] == 0 < expected[1] < expected[-1] < 400
    assert fewest_steps(start.preconditioned if scaled else start.kernel, goals) == expected


def test_a_goal_out_of_reach_is_ranked_by_the_lowest_loss():
    net, x = line(2), inputs(2)
    fit = x @ torch.linalg.lstsq(x, TARGETS).solution
    lowest = half_squared_error(fit, TARGETS).item()
    found = fewest_steps(Start(net, x, TARGETS, "mse").kernel, [1.001 * lowest, lowest / 2, lowest / 8])
    assert found[0] < 100
    assert found[1:] == pytest.approx([HORIZON * (1 + math.log(part)) for part in (2, 8)], rel=1e-9)


def test_synflow_is_a_product_of_absolute_matrices():
    net = seeded(lambda: nn.Linear(4, 3), nn.ReLU, lambda: nn.Linear(3, 2))
    first, bias, second, _ = (p.detach().numpy() for p in net.parameters())
    into, out = np.abs(first).sum(1), np.abs(second).sum(0)
    by_hand = out @ into + out @ (into + np.abs(bias))  # without the biases' own share
    assert synflow(net, torch.zeros(7, 4)) == pytest.approx(by_hand, rel=1e-12)


def test_naswot_counts_units_that_agree():
    net = nn.Sequential(nn.ReLU(), nn.Linear(3, 2, bias=False), nn.GELU()).double()
    with torch.no_grad():
        net[1].weight.copy_(torch.tensor([[1.0, 0.0, 0.0], [1.0, -2.0, 0.0]]))
    x = torch.tensor([[1.0, -1.0, -1.0], [1.0, 1.0, -1.0], [-1.0, 1.0, 1.0]])
    patterns = np.array([[1, 0, 0, 1, 1], [1, 1, 0, 1, 0], [0, 1, 1, 0, 0]])
    agree = (patterns[:, None] == patterns[None]).sum(2)
    assert naswot(net, x) == pytest.approx(math.log(np.linalg.det(agree)), rel=1e-12)
    assert naswot(net, x[[0, 0]]) == -math.inf
    assert math.isnan(naswot(nn.Linear(3, 1), x))


def test_zico_of_a_line():
    line = nn.Linear(3, 2).double()
    x, y = gaussian(1, 18).view(6, 3), gaussian(2, 12).view(6, 2)
    order = torch.randperm(6, generator=draws())
    # mean (|a| + |b|) / 2 over the deviation |a - b| / 2
    a, b = ((line(x[half]) - y[half]).detach().numpy().T @ x[half].numpy() for half in (order[:3], order[3:]))
    by_hand = math.log(((np.abs(a) + np.abs(b)) / np.abs(a - b)).sum())
    assert zico(line, x, y, "mse", generator=draws()) == pytest.approx(by_hand, rel=1e-10)


def test_te_nas_is_of_the_gradients_of_summed_outputs_by_weights():
    net = seeded(lambda: nn.Linear(5, 4), nn.Tanh, lambda: nn.Linear(4, 3))
    x = gaussian(3, 20).view(4, 5)
    rows = derivatives(net(x).sum(1), [net[0].weight, net[2].weight]).numpy()
    assert te_nas(net, x) == pytest.approx(np.linalg.cond(rows) ** 2, rel=1e-9)
    assert abs(te_nas(net, x[[0, 0, 1]])) > 1e12  # as coded: nothing is done about a zero


@pytest.mark.parametrize("gain", [0.5, 1.0, 3.0])
def test_chi_1_of_orthogonal_layers_is_their_squared_gain(gain):
    net = seeded(*[lambda: nn.Linear(4, 4)] * 5)
    for layer in net:
        nn.init.orthogonal_(layer.weight, gain)
    found = chi_1(network_of(net, gaussian(5, 12).view(3, 4)), generator=draws())
    assert found == pytest.approx(abs(math.log(gain**2)), rel=1e-10, abs=1e-12)

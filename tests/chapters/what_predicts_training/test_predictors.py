"""What is computed of a network at its start, against training by torch and derivatives by autograd."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from gnlib.chapters.what_predicts_training import forecasts
from gnlib.chapters.what_predicts_training.predictors import SLOWER, Start, predict
from tests.strategies import gaussian

N, K = 6, 3
LABELS = torch.tensor([0, 1, 2, 0, 1, 1])
TARGETS = gaussian(7, N * K).view(N, K)


def inputs(width, seed=1):
    return gaussian(seed, N * width).view(N, width)


def line(width):
    torch.manual_seed(0)
    return nn.Linear(width, K, bias=False).double()


def small(norm=nn.Identity):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 12), norm(), nn.Tanh(), nn.Linear(12, K)).double()


def half_square(outputs, y):
    return (outputs - y).square().sum() / (2 * len(outputs))


LOSSES = {"mse": (half_square, TARGETS), "cross_entropy": (functional.cross_entropy, LABELS)}
both = pytest.mark.parametrize("loss", [*LOSSES])


def whole(net, x, loss):
    """Return gradient, Gauss-Newton matrix and Hessian of a loss by all parameters, from dense derivatives."""
    function, y = LOSSES[loss]
    theta = nn.utils.parameters_to_vector(net.parameters()).detach()
    shapes = {name: p.shape for name, p in net.named_parameters()}

    def outputs(theta):
        parts = theta.split([shape.numel() for shape in shapes.values()])
        tensors = {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
        tensors |= {name: buffer.clone() for name, buffer in net.named_buffers()}
        return torch.func.functional_call(net, tensors, (x,)).flatten()

    jacobian = torch.func.jacrev(outputs)(theta)
    second = torch.autograd.functional.hessian  # that of torch.func is off for the weights of BatchNorm
    curvature = second(lambda f: function(f.view(N, K), y), outputs(theta))
    gauss_newton = jacobian.mT @ curvature @ jacobian

    def of_theta(theta):
        return function(outputs(theta).view(N, K), y)

    return torch.func.grad(of_theta)(theta), jacobian, gauss_newton, second(of_theta, theta)


def descend(net, x, loss, rate, horizon, factors=1.0):
    """Return the losses of real steps, each parameter's gradient multiplied by a factor."""
    function, y = LOSSES[loss]
    weight, losses = net.weight.detach().clone().requires_grad_(), []
    for _ in range(horizon + 1):
        value = function(x @ weight.mT, y)
        losses.append(value.item())
        (gradient,) = torch.autograd.grad(value, weight)
        weight = (weight - rate * factors * gradient).detach().requires_grad_()
    return losses


def first(losses, goal):
    return next((t for t, loss in enumerate(losses) if loss <= goal), math.inf)


@both
def test_forecasts_of_a_linear_network_are_its_training(loss):
    net, x = line(8), inputs(8)
    start = Start(net, x, LOSSES[loss][1], loss)
    _, _, matrix, _ = whole(net, x, loss)
    largest = torch.linalg.eigvalsh(matrix)[-1].item()
    curves = [descend(net, x, loss, factor / largest, 400) for factor in (1.0, 2.0, 4.0)]
    goals = [part * curves[0][0] for part in (2.0, 0.5, 0.1, 0.02)]
    expected = [min(first(curve, goal) for curve in curves) for goal in goals]
    assert expected[0] == 0 and 0 < expected[1] < expected[-1] < 400
    assert forecasts.fewest_steps(start.kernel, goals) == expected


@both
def test_forecasts_with_the_root_of_the_diagonal(loss):
    x = inputs(8) * torch.logspace(-1, 1, 8, dtype=torch.float64)
    net = line(8)
    start = Start(net, x, LOSSES[loss][1], loss)
    diagonal = x.square().mean(0)  # of G, for each output; the loss's own matrix has another
    _, _, matrix, _ = whole(net, x, loss)
    factors = 1 / diagonal.sqrt()
    root = factors.sqrt().repeat(K)
    largest = torch.linalg.eigvalsh(root[:, None] * matrix * root)[-1].item()
    curves = [descend(net, x, loss, factor / largest, 400, factors) for factor in (1.0, 2.0, 4.0)]
    goals = [part * curves[0][0] for part in (0.5, 0.1, 0.02)]
    expected = [min(first(curve, goal) for curve in curves) for goal in goals]
    assert expected[0] < expected[-1] < 400
    assert forecasts.fewest_steps(start.preconditioned, goals) == expected


def test_a_goal_out_of_reach_is_ranked_by_the_lowest_loss():
    net, x = line(2), inputs(2)
    fit = x @ torch.linalg.lstsq(x, TARGETS).solution
    lowest = half_square(fit, TARGETS).item()
    found = forecasts.fewest_steps(Start(net, x, TARGETS, "mse").kernel, [1.001 * lowest, lowest / 2, lowest / 8])
    assert found[0] < 100
    assert found[1:] == pytest.approx([forecasts.HORIZON * (1 + math.log(part)) for part in (2, 8)], rel=1e-9)


def test_beyond_the_horizon_cross_entropy_is_ranked_by_the_lowest_loss(monkeypatch):
    monkeypatch.setattr(forecasts, "HORIZON", 20)
    net, x = line(8), inputs(8)
    largest = torch.linalg.eigvalsh(whole(net, x, "cross_entropy")[2])[-1].item()
    lowest = min(min(descend(net, x, "cross_entropy", factor / largest, 20)) for factor in (1.0, 2.0, 4.0))
    (found,) = forecasts.fewest_steps(Start(net, x, LABELS, "cross_entropy").kernel, [lowest / 5])
    assert found == pytest.approx(20 * (1 + math.log(5)), rel=1e-9)


@both
@pytest.mark.parametrize("norm", [nn.Identity, lambda: nn.BatchNorm1d(12)], ids=["", "BatchNorm"])
def test_what_derivatives_of_the_whole_batch_say(loss, norm):
    net, x, (function, y) = small(norm), inputs(4), LOSSES[loss]
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    found = predict(net, x, y, loss, optimizer="descent", goals=[0.1], generator=torch.Generator().manual_seed(0))
    assert net.training and all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    gradient, jacobian, matrix, hessian = whole(net, x, loss)
    assert found["gradient_norm"] == pytest.approx(gradient.norm().item(), rel=1e-9)
    assert found["initial_loss"] == pytest.approx(function(net(x), y).item(), rel=1e-9)
    assert found["sharpness"] == pytest.approx(torch.linalg.eigvalsh(hessian)[-1].item(), rel=1e-3)
    away = gradient + torch.where(gradient >= 0, 1e-5, -1e-5)
    quotient = ((gradient - hessian @ gradient) / away - 1).abs().mean().item()
    assert found["gradient_quotient"] == pytest.approx(quotient, rel=1e-6)
    kernel = torch.linalg.svdvals(jacobian).square() / N
    rank = int((kernel > 1e-10 * kernel[0]).sum())
    assert found["largest"] == pytest.approx(kernel[0].item(), rel=1e-9)
    assert found["smallest"] == pytest.approx(kernel[rank - 1].item(), rel=1e-5)
    assert found["kappa"] == pytest.approx((kernel[0] / kernel[rank - 1]).item(), rel=1e-5)
    assert found["trace_over_largest"] == pytest.approx((kernel.sum() / kernel[0]).item(), rel=1e-9)
    own = torch.linalg.eigvalsh(matrix)
    assert found["kappa_loss"] == pytest.approx((own[-1] / own[own > 1e-10 * own[-1]][0]).item(), rel=1e-5)


@both
def test_where_targets_and_residuals_lie(loss):
    net, x, (function, y) = small(), inputs(4), LOSSES[loss]
    found = predict(net, x, y, loss, optimizer="descent", goals=[0.1], generator=torch.Generator().manual_seed(0))
    _, jacobian, _, _ = whole(net, x, loss)
    kernel = jacobian @ jacobian.mT / N
    outputs = net(x).detach().requires_grad_()
    (residual,) = torch.autograd.grad(function(outputs, y), outputs)
    r = residual.flatten()
    by_inverse = r @ torch.linalg.solve(kernel, r) * torch.linalg.matrix_norm(kernel, 2) / (r @ r)
    assert found["weighted_residual"] == pytest.approx(by_inverse.item(), rel=1e-6)
    targets = y if loss == "mse" else torch.eye(K, dtype=torch.float64)[y]
    ideal = torch.outer(*[(targets - targets.mean(0)).flatten()] * 2)
    aligned = (kernel * ideal).sum() / kernel.norm() / ideal.norm()
    assert found["alignment"] == pytest.approx(aligned.item(), rel=1e-9)


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
    found = Start(net, x, y, loss).loss_after(20, optimizer)
    steps = {
        "descent": lambda: torch.optim.SGD(net.parameters(), lr=1 / largest),
        "momentum": lambda: torch.optim.SGD(net.parameters(), lr=1.9 / largest, momentum=0.9),
        "adam": lambda: torch.optim.Adam(net.parameters(), lr=19 / largest),
    }[optimizer]()
    losses = []
    for _ in range(21):
        steps.zero_grad()
        value = function(net(x), y)
        losses.append(value.item())
        value.backward()
        steps.step()
    assert found == pytest.approx(losses[-1] / losses[0], rel=1e-7)


def test_a_training_that_diverges_has_an_infinite_loss():
    start = Start(line(2), inputs(2), TARGETS, "mse")
    start.kernel.own = start.kernel.own * 1e-30
    assert start.loss_after(20, "descent") == math.inf


@both
def test_every_predictor_has_a_direction_and_a_seed(loss):
    x, y = inputs(4, seed=2), LOSSES[loss][1]

    def again(optimizer, seed):
        draws = torch.Generator().manual_seed(seed)
        return predict(small(), x, y, loss, optimizer=optimizer, goals=[0.25, 0.05], generator=draws)

    found = again("descent", 0)
    of_goals = {f"{name}_{goal}" for name in ("forecast", "forecast_kp") for goal in ("0.25", "0.05")}
    assert {*found} == {*SLOWER} - {"forecast", "forecast_kp"} | of_goals
    assert [key for key, value in found.items() if not math.isfinite(value)] == []
    assert again("descent", 0) == found
    other = again("momentum", 0)
    assert {key for key in found if found[key] != other[key]} == {"loss_after_20"}


@pytest.mark.bad_input
def test_another_optimizer():
    with pytest.raises(ValueError, match="'rmsprop'; one of 'descent', 'momentum', 'adam'"):
        Start(line(2), inputs(2), TARGETS, "mse").loss_after(20, "rmsprop")

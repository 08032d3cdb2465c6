"""Steps that a linear model takes to a loss, against training linear networks."""

import math

import pytest
import torch
from gnbook.what_predicts_training import forecasts
from gnbook.what_predicts_training.predictors import Start

from tests.gnbook.what_predicts_training.cases import LOSSES, TARGETS, K, both, half_square, inputs, line, whole


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
    assert forecasts.fewest_steps(start.preconditioned if scaled else start.kernel, goals) == expected


def test_a_goal_out_of_reach_is_ranked_by_the_lowest_loss():
    net, x = line(2), inputs(2)
    fit = x @ torch.linalg.lstsq(x, TARGETS).solution
    lowest = half_square(fit, TARGETS).item()
    found = forecasts.fewest_steps(Start(net, x, TARGETS, "mse").kernel, [1.001 * lowest, lowest / 2, lowest / 8])
    assert found[0] < 100
    assert found[1:] == pytest.approx([forecasts.HORIZON * (1 + math.log(part)) for part in (2, 8)], rel=1e-9)

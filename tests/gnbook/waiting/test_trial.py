"""What the law of waiting says of a network, against gradient descent on a linear one."""

import math

import pytest
import torch
from gnbook.waiting.trial import row_of
from torch import nn

from tests.strategies import gaussian


@pytest.mark.parametrize("goal", [0.5, 0.1, 1e-4])
def test_a_linear_network_takes_the_steps_of_its_row(goal):
    x, y, network = gaussian(0, 4, 4), gaussian(1, 4, 3), nn.Linear(4, 3, bias=False).double()
    network.weight = nn.Parameter(gaussian(2, 3, 4))
    start = row_of(network, x, y, "mse", math.inf)["initial_loss"]
    row = row_of(network, x, y, "mse", goal * start)
    residual, steps = network(x).detach() - y, 0
    values = torch.linalg.eigvalsh(x @ x.mT)
    least = goal * residual.square().sum()
    while residual.square().sum() > least:
        residual, steps = residual - x @ (x.mT @ residual) / values[-1], steps + 1
    assert row["steps"] == steps > 0 and row["lower"] <= steps <= row["upper"]
    assert row["kappa"] == pytest.approx((values[-1] / values[0]).item()) and row["goal"] == pytest.approx(goal)

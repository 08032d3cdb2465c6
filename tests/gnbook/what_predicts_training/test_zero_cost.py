"""Scores without training, on networks for which they are known by hand."""

import math

import numpy as np
import pytest
import torch
from gnbook.what_predicts_training.curvature import differentiated
from gnbook.what_predicts_training.zero_cost import (
    chi_1,
    gradient_quotient,
    naswot,
    synflow,
    te_nas,
    zico,
)
from torch import nn

from gnlib.jacobian.trial import network_of
from gnlib.losses import loss_of
from tests.strategies import gaussian


def seeded(*layers):
    torch.manual_seed(0)
    return nn.Sequential(*(layer() for layer in layers)).double()


def draws():
    return torch.Generator().manual_seed(0)


def test_synflow_is_a_product_of_absolute_matrices():
    net = seeded(lambda: nn.Linear(4, 3), nn.ReLU, lambda: nn.Linear(3, 2))
    first, bias, second, _ = (p.detach().numpy() for p in net.parameters())
    into, out = np.abs(first).sum(1), np.abs(second).sum(0)
    by_hand = out @ into + out @ (into + np.abs(bias))  # without the biases' own share
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    assert synflow(net, torch.zeros(7, 4)) == pytest.approx(by_hand, rel=1e-12)
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


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


def test_the_gradient_quotient_of_a_quadratic_is_its_mean_curvature():
    line = nn.Linear(3, 1, bias=False).double()
    curvatures = torch.tensor([0.5, 2.0, 8.0], dtype=torch.float64)
    x, y = (3 * curvatures).sqrt().diag(), 100 * torch.ones(3, 1, dtype=torch.float64)
    network = network_of(line, x)
    with differentiated(network, loss_of("mse", y, line(x).detach())) as (gradient, product):
        found = gradient_quotient(gradient, product(gradient))
    assert found == pytest.approx(curvatures.mean().item(), rel=1e-5)


def test_zico_of_a_line():
    line = nn.Linear(3, 2).double()
    x, y = gaussian(1, 18).view(6, 3), gaussian(2, 12).view(6, 2)
    order = torch.randperm(6, generator=draws())
    gradients = []
    for half in (order[:3], order[3:]):
        residual = (line(x[half]) - y[half]).detach().numpy()
        gradients.append(residual.T @ x[half].numpy() / 3)
    a, b = gradients  # mean (|a| + |b|) / 2 over the deviation |a - b| / 2
    by_hand = math.log(((np.abs(a) + np.abs(b)) / np.abs(a - b)).sum())
    assert zico(line, x, y, "mse", generator=draws()) == pytest.approx(by_hand, rel=1e-10)
    assert math.isnan(zico(line, x[:1], y[:1], "mse", generator=draws()))


def test_te_nas_is_of_the_gradients_of_summed_outputs_by_weights():
    net = seeded(lambda: nn.Linear(5, 4), nn.Tanh, lambda: nn.Linear(4, 3))
    x = gaussian(3, 20).view(4, 5)
    weights = {name: p.detach() for name, p in net.named_parameters() if "weight" in name}
    jacobian = torch.func.jacrev(lambda w: torch.func.functional_call(net, w, (x,)).sum(1))(weights)
    rows = torch.cat([block.flatten(1) for block in jacobian.values()], 1).detach().numpy()
    assert te_nas(net, x) == pytest.approx(np.linalg.cond(rows) ** 2, rel=1e-9)
    assert abs(te_nas(net, x[[0, 0, 1]])) > 1e12  # as coded: nothing is done about a zero


@pytest.mark.parametrize("gain", [0.5, 1.0, 3.0])
def test_chi_1_of_orthogonal_layers_is_their_squared_gain(gain):
    net = seeded(*[lambda: nn.Linear(4, 4)] * 5)
    for layer in net:
        nn.init.orthogonal_(layer.weight, gain)
    found = chi_1(network_of(net, gaussian(5, 12).view(3, 4)), generator=draws())
    assert found == pytest.approx(abs(math.log(gain**2)), rel=1e-10, abs=1e-12)

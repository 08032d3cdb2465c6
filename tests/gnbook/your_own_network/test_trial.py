"""The trial of the guide, on problems whose answer is known."""

import pytest
import torch
from gnbook.your_own_network.trial import checked, linear_losses
from torch import nn

import gnlib


@pytest.fixture
def raw():
    torch.manual_seed(0)
    return torch.rand(32, 3, 16, 16, dtype=torch.float64)


@pytest.fixture
def labels():
    torch.manual_seed(1)
    return torch.randint(10, (32,))


@pytest.fixture
def linear():
    torch.manual_seed(2)
    return nn.Sequential(nn.Flatten(), nn.Linear(768, 10))


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
@pytest.mark.parametrize("optimizer", ["descent", "adam"])
def test_a_linear_network_stays_with_its_linear_model(linear, raw, labels, loss, optimizer):
    found = checked(linear, raw[:8], labels[:8], loss, optimizer, steps=40)
    assert found["off"] == pytest.approx(1, rel=2e-2) and found["off_early"] == pytest.approx(1, rel=2e-2)
    assert found["early"] == pytest.approx(1, rel=1e-4) and found["left"] < 1


def test_the_linear_model_decays_along_the_eigenvectors_of_its_kernel(raw, labels):
    torch.manual_seed(3)
    network = nn.Sequential(nn.Flatten(), nn.Linear(768, 20), nn.ReLU(), nn.Linear(20, 10)).double()
    x, targets, rate = raw[:4], torch.eye(10, dtype=torch.float64)[labels[:4]], 0.01
    values, vectors = torch.linalg.eigh(gnlib.GaussNewton(network, x).gram())
    parts = (vectors.mT @ (network(x) - targets).detach().flatten()).square() / (2 * len(x))
    expected = [(parts * (1 - rate * values) ** (2 * step)).sum().item() for step in range(6)]
    assert linear_losses(network, x, targets, "mse", "descent", rate, 5) == pytest.approx(expected, rel=1e-9)

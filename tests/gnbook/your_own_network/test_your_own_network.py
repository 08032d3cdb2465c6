"""Networks of the guide, their trainings and the trial, on problems whose answer is known."""

import numpy as np
import pytest
import torch
from gnbook.your_own_network.trainings import compare
from gnbook.your_own_network.trial import checked, linear_losses
from torch import nn

import gnlib


def test_a_linear_network_is_its_linear_model():
    torch.manual_seed(2)
    x, targets = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64)
    one = compare(nn.Linear(4, 2), x, targets, 40)
    np.testing.assert_allclose(one.measured, one.modelled, rtol=1e-4)
    assert one.early == pytest.approx(1, rel=1e-4) and one.end == pytest.approx(1, rel=1e-4)
    assert one.kappa == pytest.approx(one.kappa_at_end, rel=1e-3) and one.off == pytest.approx(1, rel=1e-3)
    assert len(one.measured) == len(one.guaranteed) == 41
    assert (one.modelled <= one.guaranteed + 1e-9).all()


def images(n, *layers):
    """Return images, their labels, and a network for them."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), *(layer() for layer in layers))
    return torch.rand(n, 3, 16, 16, dtype=torch.float64), torch.randint(10, (n,)), network


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
@pytest.mark.parametrize("optimizer", ["descent", "adam"])
def test_a_linear_network_stays_with_its_linear_model(loss, optimizer):
    raw, labels, linear = images(8, lambda: nn.Linear(768, 10))
    found = checked(linear, raw, labels, loss, optimizer, steps=40)
    assert found["off"] == pytest.approx(1, rel=2e-2) and found["off_early"] == pytest.approx(1, rel=2e-2)
    assert found["early"] == pytest.approx(1, rel=1e-4) and found["left"] < 1


def test_the_linear_model_decays_along_the_eigenvectors_of_its_kernel():
    x, labels, network = images(4, lambda: nn.Linear(768, 20), nn.ReLU, lambda: nn.Linear(20, 10))
    network, targets, rate = network.double(), torch.eye(10, dtype=torch.float64)[labels], 0.01
    values, vectors = torch.linalg.eigh(gnlib.GaussNewton(network, x).gram())
    parts = (vectors.mT @ (network(x) - targets).detach().flatten()).square() / (2 * len(x))
    expected = [(parts * (1 - rate * values) ** (2 * step)).sum().item() for step in range(6)]
    assert linear_losses(network, x, targets, "mse", "descent", rate, 5) == pytest.approx(expected, rel=1e-9)

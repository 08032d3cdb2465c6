"""Networks of the guide, and their trainings on problems whose answer is known."""

import math

import numpy as np
import pytest
import torch
from gnbook.your_own_network import trainings
from gnbook.your_own_network.networks import INITIALISATIONS, cnn, initialised
from gnbook.your_own_network.trainings import compare, remedies
from torch import nn

import gnlib


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    monkeypatch.setattr(trainings, "MOST", 200)


def test_each_change_is_trained_and_foretold():
    torch.manual_seed(0)
    x, y = torch.randn(64, 4) + 5, torch.randint(3, (64,))
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    found = {one.what: one for one in remedies(network, x, y, 1.0)}
    (centred,) = (one for what, one in found.items() if what.startswith("centre"))
    assert 0 < centred.after < centred.before and centred.of_descent > 1.25
    few = x[:20], x[:20] - x[:20].mean(0)
    courses = [gnlib.GaussNewton(network, z, y[:20], "cross_entropy").forecast().losses for z in few]
    goal = max(0.1 * float(courses[0][0]), float(courses[0].min()))
    before, after = (int((course <= goal * (1 + 1e-9)).nonzero()[0]) for course in courses)
    assert centred.what == "centre the inputs" and centred.of_descent == pytest.approx(before / after, rel=0.02)


def test_a_linear_network_is_its_linear_model():
    torch.manual_seed(2)
    x, targets = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64)
    one = compare(nn.Linear(4, 2), x, targets, 40)
    np.testing.assert_allclose(one.measured, one.modelled, rtol=1e-4)
    assert one.early == pytest.approx(1, rel=1e-4) and one.end == pytest.approx(1, rel=1e-4)
    assert one.kappa == pytest.approx(one.kappa_at_end, rel=1e-3) and one.off == pytest.approx(1, rel=1e-3)
    assert len(one.measured) == len(one.guaranteed) == 41
    assert (one.modelled <= one.guaranteed + 1e-9).all()


@pytest.mark.parametrize(
    ("name", "variance"),
    [
        ("Kaiming normal", 2 / 288),
        ("Kaiming / 4", 2 / 288 / 16),
        ("Kaiming x 4", 2 / 288 * 16),
        ("Xavier normal", 2 / (288 + 576)),
        ("orthogonal", 2 / 288),
        ("torch default", 1 / 288 / 3),
    ],
)
def test_initialisations_have_the_deviations_of_their_names(name, variance):
    net = initialised(cnn, INITIALISATIONS[name], 0)
    weight = net[6].weight  # 9 * 32 inputs, 9 * 64 outputs
    assert weight.std().item() == pytest.approx(math.sqrt(variance), rel=0.03)
    assert (net[6].bias == 0).all() == (name != "torch default")

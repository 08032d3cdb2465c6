"""Trainings of the guide, on problems whose answer is known."""

import numpy as np
import pytest
import torch
from gnbook.your_own_network.networks import cnn, group_norm
from gnbook.your_own_network.trainings import MOST, compare, remedies, steps_of_adam, trainings
from torch import nn

import gnlib


def test_steps_of_adam_are_whole_epochs_or_a_thousand():
    torch.manual_seed(0)
    network, x, y = nn.Linear(4, 3), torch.randn(64, 4), torch.randint(3, (64,))
    steps = steps_of_adam(network, x, y, 1.1)
    assert 0 < steps < MOST and steps % 2 == 0
    assert steps_of_adam(network, x, y, 1e-9) == MOST


def test_what_a_report_tries_is_trained():
    torch.manual_seed(0)
    x, y = torch.randn(64, 4) + 20, torch.randint(3, (64,))
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    found = {one.what: one for one in remedies(network, x, y, 1.0)}
    (centred,) = (one for what, one in found.items() if what.startswith("centre"))
    assert centred.sooner == centred.before / centred.after
    report = gnlib.report(network, x[:20], y[:20], loss="cross_entropy")
    told = {s.what: s.pace.before / max(s.pace.steps, 1) for s in report.suggestions}
    assert centred.of_descent == pytest.approx(told[centred.what])


def test_a_linear_network_is_its_linear_model():
    torch.manual_seed(2)
    x, targets = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64)
    one = compare(nn.Linear(4, 2), x, targets, 40)
    np.testing.assert_allclose(one.measured, one.modelled, rtol=1e-4)
    assert one.early == pytest.approx(1, rel=1e-4) and one.end == pytest.approx(1, rel=1e-4)
    assert one.kappa == pytest.approx(one.kappa_at_end, rel=1e-3) and one.off == pytest.approx(1, rel=1e-3)
    assert len(one.measured) == len(one.guaranteed) == 41
    assert (one.modelled <= one.guaranteed + 1e-9).all()


def test_eleven_networks_are_trained():
    x = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    small = {
        "CNN": lambda: cnn(channels=(4, 4)),
        "CNN, GroupNorm": lambda: cnn(group_norm, channels=(4, 4)),
        "transformer, pre-norm": lambda: cnn(channels=(4, 8)),
    }
    names = [name for name, _ in trainings(small, x, torch.eye(10, dtype=torch.float64)[:2], 10)]
    assert len(set(names)) == 11 and names[-1] == ("transformer, pre-norm", "orthogonal")

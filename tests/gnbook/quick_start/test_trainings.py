"""Networks and trainings of the quick start, on problems of which the steps are known."""

import math
from functools import partial

import pytest
import torch
from gnbook.quick_start.trainings import POWERS, tuned
from gnbook.shared.training import GradientDescent, train
from torch import nn
from torch.nn.functional import cross_entropy

import gnlib

X, Y = torch.eye(3), torch.arange(3)


@pytest.fixture
def network():
    network = nn.Linear(3, 3, bias=False)
    nn.init.zeros_(network.weight)
    return network


def test_the_run_that_is_kept_is_the_soonest(network):
    stable = gnlib.GaussNewton(network, X, loss="cross_entropy").stable_rate()
    run = tuned(network, X, Y, 0.5, 400)
    descend = partial(train, network, X, Y, loss=cross_entropy, optimizer=GradientDescent, until=0.5, most=400)
    steps = [descend(rate=stable.rate * 2.0**power).steps for power in POWERS]
    assert run.steps == min(steps) == steps[POWERS.index(int(math.log2(run.share)))]
    assert run.kappa == pytest.approx(1)  # three images at right angles, three outputs that are alike
    with pytest.raises(ValueError, match="no training"):
        tuned(network, X.repeat(2, 1), torch.tensor([0, 1, 2, 1, 2, 0]), 0.5, 5)  # two classes for each image

"""The linear model of a change is that of its forecast."""

import pytest
import torch
from gnbook.shared.foretold import Pace, paces
from torch import nn

import gnlib


def test_steps_are_those_of_the_forecasts_to_a_common_goal_and_adam_has_its_own():
    torch.manual_seed(0)
    net, x, y = nn.Linear(4, 3).double(), torch.randn(9, 4).double() + 3, torch.arange(9) % 3
    both = [(net, x), (net, x - x.mean(0))]
    (pace,) = paces(both, y)
    courses = [gnlib.GaussNewton(net, z, y, "cross_entropy").forecast().losses for _, z in both]
    assert pace.goal == pytest.approx(max(0.1 * min(float(c[0]) for c in courses), float(courses[0].min())))
    assert [pace.before, pace.after] == [int((c <= pace.goal * (1 + 1e-9)).nonzero()[0]) for c in courses]
    assert pace.factor == pace.before / pace.after > 1.25
    assert Pace(0.1, 10, None).factor == 0.0 and Pace(0.1, 10, 0).factor == 10.0
    (adam,) = paces(both, y, adam=True)
    assert (pace.before, pace.after) != (adam.before, adam.after)

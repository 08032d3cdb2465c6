"""Bounds for an output that is not linear."""

import pytest
import torch
from gnbook.when_the_kernel_moves.nonlinear_output import liu_theorem_5_1


def test_theorem_5_1_by_hand():
    rate = liu_theorem_5_1(torch.diag(torch.tensor([8.0, 20.0]).double()), torch.tensor([3.0, 4.0]).double(), 0.5)
    assert rate.radius == pytest.approx(2 * 5 / (0.5 * 2)) and rate.rate == pytest.approx(4 * 0.25)
    assert (1 - 0.1 * rate.rate) ** rate.steps(0.1, 100.0) == pytest.approx(0.01)

"""The loss that gradient descent before a fixed layer leaves."""

import numpy as np
import pytest
import torch
from gnbook.random_layers import descent

LAYERS = descent.small_layers(5, seed=0)


@pytest.mark.parametrize("target, wanted", [("easy", LAYERS[3]), ("random", torch.eye(5, dtype=torch.float64))])
def test_it_is_gradient_descent_itself(target, wanted):
    """The mean over targets U X with U as given is that of a X with independent entries of variance one: X = I."""
    layer, losses = LAYERS[3], []
    rate, learned = torch.linalg.matrix_norm(layer, 2) ** -2, torch.zeros_like(layer)
    for _ in range(20):
        learned = learned - rate * layer.mT @ (layer @ learned - wanted)
        losses.append(((layer @ learned - wanted).square().sum() / wanted.square().sum()).item())
    assert descent.loss_after(np.arange(1, 21), layer, target) == pytest.approx(np.array(losses))


@pytest.mark.parametrize("target", ["random", "easy"])
def test_the_steps_are_the_first_at_which_the_loss_is_there(target):
    for layer in LAYERS[:4]:
        steps = descent.steps_to(1e-3, layer, target)
        assert descent.loss_after(steps, layer, target) <= 1e-3 < descent.loss_after(steps - 1, layer, target)

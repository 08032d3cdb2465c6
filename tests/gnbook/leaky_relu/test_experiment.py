"""The experiment of both pages on leaky ReLUs."""

import pytest
import torch
from gnbook.leaky_relu.experiment import condition, losses_of, module_of, preparations, weights_of
from gnbook.shared.hidden_layer import leaky_relu_gram

from gnlib import GaussNewton
from tests.oracles import normal

X = normal(6, 9, seed=1)


def test_each_preparation_does_what_its_name_says():
    raw, standardised, centred, white = preparations(X).values()
    assert raw is X
    torch.testing.assert_close(standardised.mean(), torch.tensor(0.0).double(), atol=1e-12, rtol=0)
    torch.testing.assert_close(standardised.std(), torch.tensor(1.0).double())
    torch.testing.assert_close(centred.mean(0), torch.zeros(9).double(), atol=1e-12, rtol=0)
    torch.testing.assert_close(white @ white.mT / len(X), torch.eye(6).double(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("slope", [0.0, 0.3])
def test_the_module_is_the_network_of_the_weights(slope):
    weights = weights_of(X, 7, 3, outputs=2)
    ours, of_module = leaky_relu_gram(weights, X, slope), GaussNewton(module_of(weights, slope), X).gram()
    torch.testing.assert_close(torch.linalg.eigvalsh(ours), torch.linalg.eigvalsh(of_module))


def test_at_slope_one_directions_that_no_linear_network_has_are_left_out():
    x = torch.cat([X, X])  # twelve samples of rank six
    assert condition(weights_of(x, 20, outputs=2), x, 1).rank == 12
    assert condition(weights_of(x, 20, outputs=2), x, 0.5).rank <= 24


def test_a_training_ends_at_a_twentieth_of_its_first_loss():
    weights, targets = weights_of(X, 30, outputs=2), normal(6, 2, seed=2)
    rate = 1 / torch.linalg.eigvalsh(leaky_relu_gram(weights, X, 0.3))[-1].item()
    losses = losses_of(weights, X, targets, 0.3, rate, 2000)
    assert losses[-1] <= losses[0] / 20 < losses[-2]

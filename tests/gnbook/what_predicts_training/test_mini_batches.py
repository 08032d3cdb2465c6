"""Runs on mini-batches: against the linear model where the network is one, and what a shuffled epoch draws."""

import torch
from gnbook.what_predicts_training.mini_batches import _draws, losses_of_runs
from torch import nn

import gnlib


def test_the_mean_of_runs_of_a_linear_network_is_that_of_its_model():
    torch.manual_seed(0)
    net, x, y = nn.Linear(3, 1).double(), torch.randn(5, 3).double(), torch.randn(5, 1).double()
    model = gnlib.GaussNewton(net, x, y).batch_forecast(2, [0.3, 0.2, 0.1])
    runs = losses_of_runs((net, x, y), 2, model.rates, runs=2000, every=1)
    assert (runs.mean(0)[1:] - model.losses[1:]).abs().le(4 * runs.std(0)[1:] / 2000**0.5).all()
    full = losses_of_runs((net, x, y), 5, model.rates, runs=1, every=1)
    torch.testing.assert_close(full[0], model.full_batch)


def test_a_shuffled_epoch_has_each_sample_once():
    draws = _draws(6, 2, 3, shuffled=True)
    epoch = torch.cat([next(draws) for _ in range(3)], 1)
    assert torch.equal(epoch.sort(1).values, torch.arange(6).expand(3, 6))

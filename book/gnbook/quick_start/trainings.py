"""How soon a network reaches a loss at the best of several learning rates: by gradient descent and with Adam."""

import copy
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import gnlib

POWERS = range(-6, 4)  # of two, times the largest stable rate
ADAMS_RATES = (1e-2, 3e-3, 1e-3)
DIVERGED = 100.0


@dataclass(frozen=True)
class Run:
    """The training that is soonest at its goal.

    Attributes
    ----------
    losses
        before each step, up to the first that is not above the goal
    share
        its learning rate over the largest stable one
    kappa
        the condition number before training
    """

    losses: list[float]
    share: float
    kappa: float

    @property
    def steps(self) -> int:
        """Steps until the loss is at the goal for the first time."""
        return len(self.losses) - 1

    def steps_to(self, goal: float) -> int:
        """Return the steps until the loss is at this goal for the first time."""
        return next(step for step, loss in enumerate(self.losses) if loss <= goal)


def descend(
    network: nn.Module, x: Float[Tensor, "n ..."], y: Int[Tensor, " n"], rate: float, goal: float, most: int
) -> list[float]:
    """Train a copy by gradient descent on the cross-entropy of the whole batch; return the losses up to the goal."""
    weights = {name: p.detach().clone() for name, p in network.named_parameters()}
    losses: list[float] = []
    while len(losses) <= most and (not losses or goal < losses[-1] < DIVERGED):
        leaves = {name: p.requires_grad_() for name, p in weights.items()}
        loss = cross_entropy(torch.func.functional_call(network, leaves, x), y)
        gradients = torch.autograd.grad(loss, [*leaves.values()])
        weights = {name: (p - rate * g).detach() for (name, p), g in zip(leaves.items(), gradients, strict=True)}
        losses.append(loss.item())
    return losses


def tuned(network: nn.Module, x: Float[Tensor, "n ..."], y: Int[Tensor, " n"], goal: float, most: int) -> Run:
    """Train by gradient descent at ten rates that are factors of two apart; return the run that is soonest at the goal.

    Parameters
    ----------
    network
        where each training begins
    x, y
        the batch, and its classes
    goal
        cross-entropy that is to be reached
    most
        steps after which a training is given up
    """
    stable = gnlib.GaussNewton(network, x, loss="cross_entropy").stable_rate()
    best: list[float] | None = None
    share = 0.0
    for power in sorted(POWERS, key=lambda power: abs(power + 1)):  # from half of the largest stable rate
        few = len(best) - 2 if best else most  # to be better, it has to be sooner
        losses = descend(network, x.float(), y, stable.rate * 2.0**power, goal, few)
        if losses[-1] <= goal:
            best, share = losses, 2.0**power
    if best is None:
        raise ValueError(f"no training reaches a loss of {goal} within {most} steps")
    return Run(best, share, stable.largest / stable.smallest)


def epochs_of_adam(
    network: nn.Module, x: Float[Tensor, "n ..."], y: Int[Tensor, " n"], goal: float, *, most: int = 100, seed: int = 0
) -> list[float]:
    """Train copies with Adam on mini-batches of 32 at each of three rates; return the fewest losses up to the goal.

    The losses are those on all samples, after each epoch.
    """
    best: list[float] | None = None
    for rate in ADAMS_RATES:
        losses = _epochs(network, x.float(), y, goal, rate, len(best) if best else most, seed)
        if losses[-1] <= goal:
            best = losses
    if best is None:
        raise ValueError(f"no training reaches a loss of {goal} within {most} epochs")
    return best


def _epochs(network: nn.Module, x: Tensor, y: Tensor, goal: float, rate: float, most: int, seed: int) -> list[float]:
    trained, order = copy.deepcopy(network), torch.Generator().manual_seed(seed)
    adam = torch.optim.Adam(trained.parameters(), rate)
    losses: list[float] = []
    while len(losses) < most and (not losses or losses[-1] > goal):
        for batch in torch.randperm(len(x), generator=order).split(32):
            adam.zero_grad()
            cross_entropy(trained(x[batch]), y[batch]).backward()
            adam.step()
        losses.append(cross_entropy(trained(x), y).item())
    return losses

"""How soon a network reaches a loss at the best of several learning rates: by gradient descent and with Adam."""

from dataclasses import dataclass
from functools import partial

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import gnlib
from gnbook.shared.training import GradientDescent, Training, fastest, fastest_of_adam, train

POWERS = range(-6, 4)  # of two, times the largest stable rate


@dataclass(frozen=True)
class Run(Training):
    """The training that is soonest at its goal, at this share of the largest stable rate, and kappa before it."""

    share: float
    kappa: float


def tuned(network: nn.Module, x: Float[Tensor, "n ..."], y: Int[Tensor, " n"], goal: float, most: int) -> Run:
    """Train by gradient descent at ten rates that are factors of two apart; return the run that is soonest at the goal.

    The goal is a cross-entropy.
    """
    stable = gnlib.GaussNewton(network, x, loss="cross_entropy").stable_rate()
    run = partial(train, network, x.float(), y, loss=cross_entropy, optimizer=GradientDescent, until=goal)
    powers = sorted(POWERS, key=lambda power: abs(power + 1))  # from half of the largest stable rate
    best = fastest(run, [stable.rate * 2.0**power for power in powers], most)
    if best is None:
        raise ValueError(f"no training reaches a loss of {goal} within {most} steps")
    rate, training = best
    return Run(**vars(training), share=rate / stable.rate, kappa=stable.largest / stable.smallest)


def epochs_of_adam(
    network: nn.Module, x: Float[Tensor, "n ..."], y: Int[Tensor, " n"], goal: float, *, most: int = 100, seed: int = 0
) -> list[float]:
    """Train copies with Adam on mini-batches of 32 at each of three rates; return the fewest losses up to the goal.

    The losses are those on all samples, after each epoch.
    """
    epoch = -(-len(x) // 32)
    best = fastest_of_adam(network, x.float(), y, until=goal, most=most * epoch, seed=seed)
    if best is None:
        raise ValueError(f"no training reaches a loss of {goal} within {most} epochs")
    return best.losses[1:]

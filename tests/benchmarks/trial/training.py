"""Real steps: a run at one learning rate, and the best run of a grid that is the same for all variants."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from gnbook.your_own_network.sixty import STEPS
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import SGD, Adam, Optimizer

from tests.benchmarks.trial.cases import Case, Data, called

GOAL = 0.1  # of the smallest first loss of all variants
EXPLODED = 1e3  # times the first loss
DEAD = 0.99  # of the first loss: what a run that learns nothing is left with
PATIENCE = 4  # smaller rates that are no better, after which none is tried
HALF_DECADES = 10**-0.5
BETWEEN = 10**0.25, 10**0.125  # by which rates differ from the best, once the grid is done, up and down
RATES = {
    "adam": [HALF_DECADES**i for i in range(9)],  # 1 to 0.0001
    "sgd": [100 * HALF_DECADES**i for i in range(19)],  # 100 to 1e-7, for losses in units of the targets' variance
}
MAKE: dict[str, Callable[..., Optimizer]] = {"adam": Adam, "sgd": SGD}


@dataclass(frozen=True, eq=False)
class Run:
    """A training: its rate, its losses before the first step, after it and so on, and what came out."""

    rate: float
    losses: tuple[float, ...]
    goal: float
    module: nn.Module

    @property
    def steps(self) -> float:
        """Steps to the goal, at least one, or infinity; the loss is there for two steps in a row, not by chance."""
        pairs = enumerate(pairwise(self.losses))
        return next((float(max(t, 1)) for t, pair in pairs if max(pair) <= self.goal), math.inf)

    @property
    def least(self) -> float:
        """The least loss that is finite."""
        return min(filter(math.isfinite, self.losses), default=math.inf)

    @property
    def state(self) -> str:
        """Whether the goal was reached, and if not, why not."""
        if self.steps < math.inf:
            return "reached"
        if not self.losses[-1] <= EXPLODED * self.losses[0]:
            return "exploded"
        return "censored" if self.losses[-1] < DEAD * self.losses[0] else "dead"

    @property
    def order(self) -> tuple[bool, float, float]:
        """What the best run has the least of."""
        return self.state == "exploded", self.steps, self.losses[-1]


def train(case: Case, module: nn.Module, data: Data, optimizer: str, rate: float, goal: float, limit: float) -> Run:
    """Train a copy on all samples at once, to the goal or for so many steps."""
    module, unit, losses = copy.deepcopy(module), case.unit(data.y), []
    own = MAKE[optimizer]([p for p in module.parameters() if p.requires_grad], lr=rate)
    while True:
        own.zero_grad(set_to_none=True)
        loss = case.loss_of(module, data.x, data.y) / unit
        losses.append(float(loss.detach()))
        there = len(losses) > 1 and max(losses[-2:]) <= goal
        if there or len(losses) > limit + 1 or not losses[-1] <= EXPLODED * losses[0]:
            return Run(rate, tuple(losses), goal, module)
        loss.backward()
        own.step()


def best_run(case: Case, module: nn.Module, data: Data, optimizer: str, goal: float) -> tuple[Run, int]:
    """Return the best run of the grid, and how many steps the search took.

    Rates go down from the largest. A run stops where it can no longer be the best; the search stops after four rates in
    a row that are no better, once one has lowered the loss. Then come the two rates half way to its neighbours, and
    from the best of these the two half way again.
    """
    best = train(case, module, data, optimizer, RATES[optimizer][0], goal, STEPS)
    waited, steps = 0, len(best.losses)
    for rate in RATES[optimizer][1:]:
        run = train(case, module, data, optimizer, rate, goal, min(best.steps, STEPS))
        steps += len(run.losses)
        if run.order < best.order:
            best, waited = run, 0
        elif best.state in ("reached", "censored"):
            waited += 1
        if waited == PATIENCE:
            break
    for factor in BETWEEN:
        for rate in (best.rate * factor, best.rate / factor):
            run = train(case, module, data, optimizer, rate, goal, min(best.steps, STEPS))
            steps, best = steps + len(run.losses), min(best, run, key=lambda run: run.order)
    return best, steps


@torch.no_grad()
def held_out(case: Case, module: nn.Module, data: Data) -> float:
    """Return the loss on the samples held out; running statistics are first those of all samples to train on."""
    module = copy.deepcopy(module).train()
    for layer in module.modules():
        if isinstance(layer, _BatchNorm):
            layer.reset_running_stats()
            layer.momentum = None  # the plain mean of all calls
    called(module, data.x)
    return float(case.loss_of(module.eval(), data.held_x, data.held_y)) / case.unit(data.y)


@torch.no_grad()
def first_loss(case: Case, module: nn.Module, data: Data) -> float:
    """Return the loss before training."""
    return float(case.loss_of(copy.deepcopy(module), data.x, data.y)) / case.unit(data.y)

"""How many times fewer steps the linear model takes once a network, or its inputs, are changed."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

import gnlib

STEPS, GOAL = 1000, 0.1  # of the linear model at most, and the share of the smallest first loss


@dataclass(frozen=True)
class Pace:
    """Steps of the linear model to a loss: before a change and after it, None if it never gets there."""

    goal: float
    before: int
    after: int | None

    @property
    def factor(self) -> float:
        """How many times fewer steps the change takes."""
        return 0.0 if self.after is None else self.before / max(self.after, 1)


def paces(
    networks: Sequence[tuple[nn.Module, Float[Tensor, "n ..."]]], y: Int[Tensor, " n"], *, adam: bool = False
) -> list[Pace]:
    """Return the pace of each network with its inputs but the first, which is the one before the change.

    The loss is the cross-entropy, the optimiser gradient descent or Adam at half of the largest rate at which the
    linear model is stable. The goal is a tenth of the smallest first loss, or the least that the first network reaches.
    """
    courses = []
    for network, x in networks:
        optimizer = torch.optim.Adam(network.parameters()) if adam else None
        g = gnlib.GaussNewton(network, x, y, "cross_entropy", optimizer=optimizer)
        stable = g.stable_rate()
        rate = stable.rule.limit / stable.largest / 2  # whatever the first step of the network itself bears
        courses.append(g.forecast(rate=rate, steps=STEPS, budget=1e-9).losses)
    first = courses[0]
    goal = max(float(first[first.isfinite()].min()), GOAL * min(float(course[0]) for course in courses))
    steps = [next(iter((course <= goal).nonzero().flatten().tolist()), None) for course in courses]
    before = steps[0]
    assert before is not None  # the goal is no less than its least loss
    return [Pace(goal, before, after) for after in steps[1:]]

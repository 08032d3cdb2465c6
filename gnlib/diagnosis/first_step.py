"""The first step of an adaptive optimiser, along which the loss of the network itself is tried."""

import copy
import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from gnlib.diagnosis.preconditioner import rate_of
from gnlib.diagnosis.standing import Standing
from gnlib.jacobian.network import Factors

RISE = 10  # of the loss, which no first step may reach
SHARE = 1 / 6  # of the longest first step: those that follow are as long, and may go the same way
SHORTEST = 1e-6  # of the size of the parameters, from which longer steps are tried
BISECTIONS = 3  # of the last doubling


def longest_step(standing: Standing, optimizer: Optimizer, leaves: Mapping[str, Tensor]) -> float:
    r"""Return the largest rate at which an adaptive optimiser may begin; infinite for one that is not.

    Adam's first steps have the size of the rate in each parameter, whatever the gradient: they are
    :math:`\eta \operatorname{sign} g`, which no quadratic model with P held knows of. So the network is evaluated at
    longer and longer first steps, until its loss is ten times that at the start. A sixth of the longest before is
    returned. On 31 networks of many kinds that was between 1 and 5.6 times the largest rate at which no loss of 30 real
    steps rises tenfold.

    Parameters whose gradient is zero at the start, as behind a head of zeros, have one after it, and move as far: they
    take the usual size of a step, with any sign.
    """
    if isinstance(optimizer, SGD):
        return math.inf
    (start, gradient), parameters = standing.loss_and_gradient(), standing.network.parameters
    step = _first_step(optimizer, leaves, gradient)
    flat = torch.cat([entries.flatten() for entries in step.values()])
    if not flat.any() or not math.isfinite(start) or not start:
        return math.inf
    usual, generator = flat[flat != 0].square().mean().sqrt(), torch.Generator().manual_seed(0)
    for entries in step.values():
        signs = torch.randint(2, entries.shape, generator=generator).to(entries) * 2 - 1
        entries.copy_(torch.where(entries == 0, usual * signs, entries))

    def rises(rate: float) -> bool:
        moved = {name: p - rate * step[name] for name, p in parameters.items()}
        return not standing.at(moved).value() < start + (RISE - 1) * abs(start)

    flat = torch.cat([p.flatten() for p in parameters.values()])
    rate = SHORTEST * float(flat.square().mean().sqrt() / usual) or SHORTEST
    while not rises(2 * rate) and rate < 1 / SHORTEST:
        rate *= 2
    factor = 2.0
    for _ in range(BISECTIONS):
        factor **= 0.5
        rate *= 1 if rises(factor * rate) else factor
    return SHARE * rate


def _first_step(optimizer: Optimizer, leaves: Mapping[str, Tensor], gradient: Factors) -> Factors:
    """Return how far an optimiser goes back at its next step at a rate of one, on copies, state and all."""
    twin, there = copy.deepcopy((optimizer, dict(leaves)))
    rate, before = rate_of(twin), {name: there[name].clone() for name in gradient}
    for group in twin.param_groups:
        group["lr"] /= rate
    for name, entries in gradient.items():
        there[name].grad = entries
    twin.step()
    return {name: p - there[name] for name, p in before.items()}

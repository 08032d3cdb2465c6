"""How many steps gradient descent takes to a loss, on all samples and at one learning rate."""

import copy

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnbook.shared.training import half_squared_error

HOPELESS = 1e3  # a training whose loss is so many times the one at the start is given up


def losses_until(
    network: nn.Module, x: Float[Tensor, "n ..."], targets: Float[Tensor, "n k"], rate: float, goal: float, most: int
) -> list[float]:
    """Train a copy of a network in single precision, and return half the squared error before each step.

    The last loss is the first that is not above the goal, or one that is hopeless, or that after `most` steps.

    Parameters
    ----------
    network
        left as it is
    x, targets
        all samples
    rate
        of learning, the same for each step
    goal
        loss at which the training ends
    most
        steps after which it is given up

    Examples
    --------
    >>> line = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.zeros_(line.weight)
    >>> losses_until(line, torch.ones(2, 1), torch.ones(2, 1), 0.5, 0.1, 9)
    [0.5, 0.125, 0.03125]
    """
    network, x, targets = copy.deepcopy(network).float(), x.float(), targets.float()
    weights, losses = list(network.parameters()), []
    while not losses or (goal < losses[-1] < HOPELESS * losses[0] and len(losses) <= most):
        loss = half_squared_error(network(x), targets)
        for weight, slope in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.data.sub_(slope, alpha=rate)
        losses.append(loss.item())
    return losses


def steps_to(
    network: nn.Module, x: Float[Tensor, "n ..."], targets: Float[Tensor, "n k"], rate: float, goal: float, most: int
) -> int | None:
    """Return how many steps such a training takes to the goal, and None if `most` do not reach it.

    Examples
    --------
    >>> line = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.zeros_(line.weight)
    >>> [steps_to(line, torch.ones(2, 1), torch.ones(2, 1), rate, 0.1, 9) for rate in (0.5, 3.0)]
    [2, None]
    """
    losses = losses_until(network, x, targets, rate, goal, most)
    return len(losses) - 1 if losses[-1] <= goal else None

"""The law of waiting on a network at its start: how much of the loss lies on each eigenvalue, and what T* says."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnbook.results import Cell
from gnbook.shared.waiting import steps_to
from gnlib.checks import numerical_rank
from gnlib.diagnosis.waits import spread_of
from gnlib.laws import waiting
from gnlib.problem import Problem

ROUNDING = 1e-9  # of the share of the loss that is to be left


def goal_of(above: float, start: float, loss: float) -> float:
    """Return the share of `above` that is left where the quadratic model has fallen from `start` to `loss`.

    For the squared error it is `loss / start`. It is negative where the model never falls so far.
    """
    return 1 - (start - loss) / above


def row_of(network: nn.Module, x: Float[Tensor, "n ..."], y: Tensor, loss: str, goal: float) -> dict[str, Cell]:
    r"""Return what the law of waiting says of a network at its start.

    At the rate :math:`1 / \lambda_{\max}`: `lower` and `upper` bound on the steps of the linear model, its `steps`, and
    the largest eigenvalue over the one that is waited for, `effective`. `kappa` is of the Gram matrix without the loss,
    and all others of the matrix of the loss. All steps are infinite if the quadratic model does not get to the goal;
    they are missing where a softmax is so sure and so wrong that rounding hides the goal from the model.
    """
    problem = Problem(network, x, y, loss, mode="train" if network.training else "eval")
    values, start = torch.linalg.eigvalsh(problem.gram), problem.loss.value(problem.outputs)
    kappa = (values[-1] / values[-numerical_rank(values, len(values))]).item()
    row: dict[str, Cell] = {"n": len(x), "loss": loss, "kappa": kappa, "initial_loss": start}
    try:
        spread = spread_of(problem)
    except ValueError:  # no curvature where the softmax is sure
        return row
    share = goal_of(spread.above, start, goal) if spread.above else 1.0
    if not share < 1 - ROUNDING:
        return row
    eigenvalues, shares = spread.eigenvalues.cpu().numpy(), spread.shares.cpu().numpy()
    row |= {"goal": share} | dict.fromkeys(("lower", "upper", "effective", "steps"), math.inf)
    if share <= 0:
        return row
    rate = 1 / eigenvalues[-1]
    found, steps = waiting(eigenvalues, shares, rate, share), steps_to(eigenvalues, shares, rate, share)
    effective = found.effective_condition_number
    return row | {"lower": found.lower, "upper": found.upper, "effective": effective, "steps": steps}

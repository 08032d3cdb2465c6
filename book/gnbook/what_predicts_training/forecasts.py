"""The fewest steps in which a linear model reaches a loss, over learning rates: no network, no parameters."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.what_predicts_training.spectral import Kernel
from gnlib.losses import SquaredError

HORIZON = 3_000  # steps
RATES = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
r"""The learning rates that are tried, over the largest stable one, :math:`2 / \lambda_{\max}`.

Below a half of it the squared error falls the slower, in each direction, the smaller the rate; at more than twice as
much networks are not seen to train.
"""


def fewest_steps(kernel: Kernel, goals: Sequence[float]) -> list[float]:
    r"""Return for each goal the fewest steps of :math:`f \leftarrow f - \eta K g(f)` to a loss that is not above it.

    The rates are those of `RATES` times :math:`2 / \lambda_{\max}`, the largest stable one where the model
    starts, of the loss's own matrix. Nothing is extrapolated: a goal that no rate reaches within the horizon, of 3,000
    steps, gets :math:`1 + \log (L / \text{goal})` times the horizon, with L the lowest loss at any rate, so that ranks
    make sense.
    """
    rates = RATES.to(kernel.outputs.device) * 2 / kernel.own[-1]
    search = _along_modes if isinstance(kernel.loss, SquaredError) else _by_iteration
    return [
        steps if lowest <= goal else HORIZON * (1 + math.log(lowest / goal))
        for goal, (steps, lowest) in zip(goals, search(kernel, rates, goals), strict=True)
    ]


def _along_modes(kernel: Kernel, rates: Float[Tensor, " rates"], goals: Sequence[float]) -> list[tuple[float, float]]:
    """Return the fewest steps to each goal and the loss there, or the lowest: along eigenvectors, without a loop.

    At each rate the loss is a sum of exponentials of the step, so convex. Whether it has reached the goal or ceased to
    fall is therefore no and no, then yes and yes, and the first yes is found by bisection.
    """
    values, vectors = kernel.spectrum
    residual = kernel.loss.gradient(kernel.outputs)
    start = (vectors.mT @ residual.flatten()).square() / (2 * len(residual))
    factors = (1 - rates[:, None] * values.clamp_min(0)).square()

    def at(steps: Float[Tensor, " rates"]) -> Float[Tensor, " rates"]:
        return (factors ** steps[:, None]) @ start

    found = []
    for goal in goals:
        low, high = torch.zeros_like(rates), torch.full_like(rates, HORIZON)
        while (low < high).any():
            middle = ((low + high) / 2).floor()
            done = (at(middle) <= goal) | ~(at(middle + 1) < at(middle))
            low, high = torch.where(done, low, middle + 1), torch.where(done, middle, high)
        losses = at(low)
        reached = losses <= goal
        steps = low.where(reached, torch.inf).min()
        found.append((steps.item(), losses.where(reached == reached.any(), torch.inf).min().item()))
    return found


def _by_iteration(kernel: Kernel, rates: Float[Tensor, " rates"], goals: Sequence[float]) -> list[tuple[float, float]]:
    """Return the fewest steps to each goal and the loss there, or the lowest, at all rates side by side."""
    targets, f, scaled = kernel.targets, kernel.outputs.expand(len(rates), -1, -1), rates[:, None, None]
    reached: dict[float, tuple[float, float]] = {}
    lowest = math.inf
    for step in range(HORIZON + 1):
        logarithms = f.log_softmax(2)
        now = -(logarithms * targets).sum((1, 2)).max().item() / len(targets)  # at the best rate
        if now < lowest:
            lowest = now
            reached = {goal: (float(step), now) for goal in goals if now <= goal} | reached
        if len(reached) == len({*goals}):
            break
        f = f - scaled * ((logarithms.exp() - targets).flatten(1) @ kernel.matrix).view_as(f)
    return [reached.get(goal, (math.inf, lowest)) for goal in goals]

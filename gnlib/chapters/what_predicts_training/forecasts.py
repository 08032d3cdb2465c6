"""The fewest steps in which a linear model reaches a loss, over learning rates: no network, no parameters."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from gnlib.diagnosis.losses import Loss, SquaredError
from gnlib.diagnosis.measured import through

HORIZON = 10_000  # steps
RATES = 2.0 ** torch.arange(-3, 7, dtype=torch.float64)
"""The learning rates that are tried, over the largest stable one."""


def fewest_steps(
    kernel: Float[Tensor, "nk nk"], loss: Loss, outputs: Float[Tensor, "n k"], goals: Sequence[float]
) -> list[float]:
    r"""Return for each goal the fewest steps of :math:`f \leftarrow f - \eta K g(f)` to a loss that is not above it.

    The rates are those of `RATES` times :math:`2 / \lambda_{\max}`, the largest stable one where the model starts, of
    the loss's own matrix. Nothing is extrapolated: a goal that no rate reaches within the horizon, of 10,000 steps, gets
    :math:`(1 + \log (L / \text{goal}))` times the horizon, with L the lowest loss at any rate, so that ranks make sense.

    Parameters
    ----------
    kernel
        K, with the factor `1 / n`
    loss
        squared error or cross-entropy, with its targets
    outputs
        where the model starts
    goals
        losses, the mean over the samples

    Examples
    --------
    >>> from gnlib.diagnosis import loss_of
    >>> outputs = torch.tensor([[1.0], [1.0]], dtype=torch.float64)
    >>> loss = loss_of("mse", torch.zeros_like(outputs), outputs)
    >>> fewest_steps(torch.diag(torch.tensor([1.0, 0.5], dtype=torch.float64)), loss, outputs, [0.3, 1e-3])
    [1.0, 5.0]
    """
    largest = torch.linalg.eigvalsh(through(loss.root(outputs), kernel))[-1]
    rates = RATES.to(outputs.device) * 2 / largest
    search = _of_modes if isinstance(loss, SquaredError) else _by_iteration
    return [
        steps if lowest <= goal else HORIZON * (1 + float(torch.tensor(lowest / goal).log()))
        for goal, (steps, lowest) in zip(goals, search(kernel, loss, outputs, rates, goals), strict=True)
    ]


def _of_modes(
    kernel: Float[Tensor, "nk nk"],
    loss: Loss,
    outputs: Float[Tensor, "n k"],
    rates: Float[Tensor, " rates"],
    goals: Sequence[float],
) -> list[tuple[float, float]]:
    """Return the fewest steps to each goal and the loss there, or the lowest: along eigenvectors, without a loop.

    At each rate the loss is a sum of exponentials of the step, so convex. Whether it has reached the goal or ceased to
    fall is therefore no and no, then yes and yes, and the first yes is found by bisection.
    """
    values, vectors = torch.linalg.eigh(kernel)
    start = (vectors.mT @ loss.gradient(outputs).flatten()).square() / (2 * len(outputs))
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


def _by_iteration(
    kernel: Float[Tensor, "nk nk"],
    loss: Loss,
    outputs: Float[Tensor, "n k"],
    rates: Float[Tensor, " rates"],
    goals: Sequence[float],
) -> list[tuple[float, float]]:
    """Return the fewest steps to each goal and the loss there, or the lowest, at all rates side by side."""
    targets = outputs.softmax(1) - loss.gradient(outputs)
    f, scaled = outputs.expand(len(rates), -1, -1), rates[:, None, None]
    reached: dict[float, tuple[float, float]] = {}
    lowest = torch.inf
    for step in range(HORIZON + 1):
        logarithms = f.log_softmax(2)
        best = -(logarithms * targets).sum((1, 2)).max().item() / len(outputs)
        if best < lowest:
            lowest = best
            reached = {goal: (float(step), best) for goal in goals if best <= goal} | reached
        if len(reached) == len(set(goals)):
            break
        moved = ((logarithms.exp() - targets).flatten(1) @ kernel).view_as(f)
        f = f - scaled * moved
    return [reached.get(goal, (torch.inf, lowest)) for goal in goals]

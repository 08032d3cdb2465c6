"""The fewest steps in which a linear model reaches a loss, over learning rates: no network, no parameters."""

import math
from collections.abc import Sequence

import numpy as np
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
    by_step = _along_modes if isinstance(kernel.loss, SquaredError) else _by_iteration
    losses = by_step(kernel, rates)
    losses[np.isnan(losses)] = np.inf  # a rate that diverges
    return [
        float(np.argmax(losses <= goal)) if losses.min() <= goal else HORIZON * (1 + math.log(losses.min() / goal))
        for goal in goals
    ]


def _along_modes(kernel: Kernel, rates: Float[Tensor, " rates"]) -> Float[np.ndarray, " steps"]:
    """Return the loss after each step, at the best rate: a sum of exponentials, one for each eigenvector."""
    values, vectors = kernel.spectrum
    residual = kernel.loss.gradient(kernel.outputs)
    start = (vectors.mT @ residual.flatten()).square() / (2 * len(residual))
    steps = torch.arange(HORIZON + 1, dtype=rates.dtype, device=rates.device)[:, None]
    losses = [((1 - rate * values.clamp_min(0)).square() ** steps) @ start for rate in rates]
    return torch.stack(losses).nan_to_num(nan=torch.inf).amin(0).cpu().numpy()  # where a mode diverges, inf times zero


def _by_iteration(kernel: Kernel, rates: Float[Tensor, " rates"]) -> Float[np.ndarray, " steps"]:
    """Return the loss after each step, at the best rate: all rates side by side."""
    targets, f, scaled = kernel.targets, kernel.outputs.expand(len(rates), -1, -1), rates[:, None, None]
    losses = []
    for _ in range(HORIZON + 1):
        logarithms = f.log_softmax(2)
        losses.append(-(logarithms * targets).sum((1, 2)).max().item() / len(targets))
        f = f - scaled * ((logarithms.exp() - targets).flatten(1) @ kernel.matrix).view_as(f)
    return np.array(losses)

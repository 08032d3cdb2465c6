"""Gradient descent on one layer of a small network, or on all of them: many trainings side by side."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gnbook.piecewise_linear_maps.networks import Block


class Run(NamedTuple):
    """A training of three layers without biases."""

    weights: list[Tensor]
    rates: list[float]  # of each layer; zero where it is not trained
    x: Float[Tensor, "n d"]


def start(net: nn.Sequential, found: Sequence[Block], x: Float[Tensor, "n d"], layer: int | None = None) -> Run:
    """Return the start of a training of one layer, numbered from 1, or of all.

    The rate is one over the largest eigenvalue of the layer's block, or half of that of the whole matrix.
    """
    trained = [layer is None or layer == index for index in range(1, len(net) + 1)]
    gram = torch.stack([block.gram for block, some in zip(found, trained, strict=True) if some]).sum(0)
    rate = (0.5 if layer is None else 1.0) / torch.linalg.eigvalsh(gram)[-1].item()
    return Run([part.weight.detach() for part in net], [rate * some for some in trained], x)


def descend(
    runs: Sequence[Run], targets: Float[Tensor, "n k"], slope: float, steps: int
) -> Float[np.ndarray, "steps runs"]:
    """Return half the mean squared error before the first step and after each, for each run, in a column.

    All networks have the same widths: three layers, the last of them linear.
    """
    weights = [torch.stack(layer) for layer in zip(*(run.weights for run in runs), strict=True)]
    inputs, n = torch.stack([run.x for run in runs]), len(targets)
    rates = torch.tensor([run.rates for run in runs], dtype=inputs.dtype, device=inputs.device).T[..., None, None]
    curves = np.empty((steps + 1, len(runs)))
    for step in range(steps + 1):
        z, slopes = [inputs], []
        for weight in weights[:2]:
            values = z[-1] @ weight.mT
            slopes.append(torch.ones_like(values).where(values > 0, slope))
            z.append(slopes[-1] * values)
        residual = z[2] @ weights[2].mT - targets
        curves[step] = (residual.square().sum((1, 2)) / (2 * n)).cpu()
        third = residual / n
        second = third @ weights[2] * slopes[1]
        deltas = second @ weights[1] * slopes[0], second, third
        moved = zip(weights, rates, deltas, z, strict=True)
        weights = [weight - rate * (delta.mT @ at) for weight, rate, delta, at in moved]
    return curves


def first_at(curve: Float[np.ndarray, " steps"], goal: float) -> float:
    """Return after how many steps the loss is at a goal for the first time; infinite if it never is."""
    return float((curve <= goal).argmax()) if (curve <= goal).any() else float("inf")

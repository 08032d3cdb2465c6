r"""Gradient descent on the weights before one fixed layer, with white inputs: the cost of a squeezed direction.

A *random* target asks for all directions of the output alike; an *easy* one is made by the layer itself, from other
random weights before it. Losses are means over all targets of their kind, over their value at zero weights.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gnbook.random_layers import matrices as rm

TARGETS = ("random", "easy")


def small_layers(
    n: int, *, seed: int, count: int = 21, device: str | torch.device = "cpu"
) -> Float[Tensor, "count n n"]:
    """Return layers of width n with an eighth of Kaiming's weights, of norm 0.35 if n is large."""
    generator = torch.Generator(device).manual_seed(seed)
    return rm.draw(n, count, generator=generator, device=device) / (2 * math.sqrt(8 * n))


def loss_after(steps: int | Sequence[int] | np.ndarray, layer: Float[Tensor, "n n"], target: str) -> np.ndarray | float:
    """Return the share of the loss that is left after so many steps of gradient descent of rate 1 / s₁²."""
    curvature = torch.linalg.svdvals(layer).cpu().numpy() ** 2
    left = (1 - curvature / curvature[0]) ** np.asarray(steps)[..., None]  # of the error in each direction
    return (left**2).mean(-1) if target == "random" else (left**2 @ curvature) / curvature.sum()


def steps_to(goal: float, layer: Float[Tensor, "n n"], target: str) -> int:
    """Return the steps after which the loss is that small, by bisection."""
    last = 1
    while loss_after(last, layer, target) > goal:
        last *= 2
    first = last // 2
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (middle, last) if loss_after(middle, layer, target) > goal else (first, middle)
    return last


def median_steps(goal: float, layers: Float[Tensor, "count n n"], target: str, skip: float) -> float:
    """Return the median of the steps over several layers, each with a skip of this strength, to two digits."""
    identity = torch.eye(layers.shape[-1], dtype=layers.dtype, device=layers.device)
    return float(f"{np.median([steps_to(goal, layer + skip * identity, target) for layer in layers]):.2g}")

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
from gnbook.shared.waiting import steps_to

TARGETS = ("random", "easy")


def small_layers(
    n: int, *, seed: int, count: int = 21, device: str | torch.device = "cpu"
) -> Float[Tensor, "count n n"]:
    """Return layers of width n with an eighth of Kaiming's weights, of norm 0.35 if n is large."""
    generator = torch.Generator(device).manual_seed(seed)
    return rm.draw(n, count, generator=generator, device=device) / (2 * math.sqrt(8 * n))


def spread(layer: Float[Tensor, "n n"], target: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the curvature in each direction of the output, and its share of the loss."""
    curvature = torch.linalg.svdvals(layer).cpu().numpy() ** 2
    return curvature, np.full(len(curvature), 1 / len(curvature)) if target == "random" else curvature / curvature.sum()


def loss_after(steps: int | Sequence[int] | np.ndarray, layer: Float[Tensor, "n n"], target: str) -> np.ndarray | float:
    """Return the share of the loss that is left after so many steps of gradient descent of rate 1 / s₁²."""
    curvature, shares = spread(layer, target)
    return (1 - curvature / curvature[0]) ** (2 * np.asarray(steps)[..., None]) @ shares


def median_steps(goal: float, layers: Float[Tensor, "count n n"], target: str, skip: float) -> float:
    """Return the median of the steps over several layers, each with a skip of this strength, to two digits."""
    identity = torch.eye(layers.shape[-1], dtype=layers.dtype, device=layers.device)
    spreads = [spread(layer + skip * identity, target) for layer in layers]
    steps = [steps_to(curvature, shares, 1 / curvature[0], goal) for curvature, shares in spreads]
    return float(f"{np.median(steps):.2g}")

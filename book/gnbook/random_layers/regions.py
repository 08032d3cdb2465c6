"""The regions of a residual layer with ReLUs: which of them is the worst."""

import math
from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gnbook.random_layers import bounds
from gnbook.random_layers import matrices as rm


def relu_condition(w: Float[Tensor, "n n"], after: Bool[Tensor, " n"], before: Bool[Tensor, " n"]) -> float:
    """Return kappa of (D1 W + I) D for ReLUs, given which units are on: D1 holds `after` and D holds `before`."""
    singular = torch.linalg.svdvals((after[:, None] * w + torch.eye(len(w)).to(w))[:, before])
    return (singular[0] / singular[-1]).item()


def worst_region(w: Float[Tensor, "n n"], active: Bool[Tensor, " m"]) -> float:
    """Switch single units as long as kappa grows; `active` are those of both layers at the start, and are changed."""
    n, improving = len(w), True
    best = relu_condition(w, active[:n], active[n:])
    while improving:
        improving = False
        for i in range(2 * n):
            active[i] = ~active[i]
            value = relu_condition(w, active[:n], active[n:]) if active[n:].any() else 0
            if value > best * (1 + 1e-12):
                best, improving = value, True
            else:
                active[i] = ~active[i]
    return best


def look_at(rs: Iterable[float], *, n: int, regions: int, seed: int) -> list[dict[str, float]]:
    """Return kappa in regions of one Gaussian layer of width n, a row for each size of its weights.

    "linear" is with all units on, "typical" the median over random regions, "worst" the largest that a search finds,
    "bound" the bound for all regions.
    """
    generator = torch.Generator().manual_seed(seed)
    k = rm.draw(n, 1, generator=generator)[0]
    at_random = torch.rand(regions, 2 * n, generator=generator) < 0.5
    at_random[:, n] = True  # something is left of the trained layer
    every, rows = torch.ones(n, dtype=torch.bool), []
    for r in rs:
        w = k / (r * math.sqrt(8 * n))
        lower, upper = bounds.all_regions(w)
        rows.append(
            {
                "r": r,
                "linear": relu_condition(w, every, every),
                "typical": float(np.median([relu_condition(w, d[:n], d[n:]) for d in at_random])),
                "worst": max(worst_region(w, every.repeat(2)), worst_region(w, at_random[0].clone())),
                "bound": upper / lower if lower > 0 else math.inf,
            }
        )
    return rows

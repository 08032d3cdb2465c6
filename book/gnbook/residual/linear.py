"""Linear residual networks: the strengths that are compared, their condition numbers, and bounds on them."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from gnlib import bounds
from gnlib.condition import condition_number
from gnlib.data import load
from gnlib.linear.gauss_newton import linear_gauss_newton
from gnlib.linear.moment import SecondMoment, whiten
from gnlib.linear.network import linear_weights

Strength = Callable[[int], float]

SKIPS: Mapping[str, Strength] = {
    "no skip": lambda depth: 0.0,
    "1 / L": lambda depth: 1 / depth,
    "1 / sqrt(L)": lambda depth: depth**-0.5,
    "1": lambda depth: 1.0,
}
"""Strengths of the kept table, as functions of the number of layers."""

STRONG: Mapping[str, Strength] = {"sqrt(L)": lambda depth: depth**0.5, "L": float}
"""Strengths that grow with the depth: weak branches by another name."""


def network(widths: Sequence[int], seed: int, device: torch.device | str = "cpu") -> list[Tensor]:
    """Return Kaiming weights of gain 1, drawn on the CPU."""
    return [w.to(device) for w in linear_weights(widths, generator=torch.Generator().manual_seed(seed))]


def white_images(name: str, count: int, *, full_rank: bool = False, device: torch.device | str = "cpu") -> SecondMoment:
    """Return the second moment of whitened images: of their own rank, or of as many directions as there are pixels."""
    images = load(name, count)[0].to(device)
    if full_rank:
        size, options = images.shape[1], {"dtype": torch.float64, "device": device}
        return SecondMoment(torch.eye(size, **options), torch.ones(size, **options))
    return SecondMoment.from_data(whiten(images))


def measured(
    moment: SecondMoment,
    width: int,
    depths: Sequence[int],
    seeds: int,
    names: Sequence[str],
    bounded: Sequence[str] = (),
    outputs: int = 10,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return condition numbers (seeds x depths) by strength, and the two bounds of Eq. 7 (depths x 2) for some.

    Networks of one seed share their layers. The bounds are of the first network of each depth.
    """
    kappas = {name: np.empty((seeds, len(depths))) for name in names}
    lemma: dict[str, list] = {name: [] for name in bounded}
    inputs, device = len(moment.basis), moment.basis.device
    for seed in range(seeds):
        hidden = network([inputs] + [width] * (max(depths, default=2) - 1), seed, device)
        last = network([width, outputs], 1000 + seed, device)  # of its own: other depths have the same networks
        for j, depth in enumerate(depths):
            weights = hidden[: depth - 1] + last
            for name in names:
                skip = {**SKIPS, **STRONG}[name](depth)
                kappas[name][seed, j] = condition_number(linear_gauss_newton(weights, moment, skip))
                if seed == 0 and name in bounded:
                    lemma[name].append(bounds.zhao_lemma_2(weights, moment, skip))
    return kappas, {name: np.reshape(values, (len(depths), 2)) for name, values in lemma.items()}

"""Chains of residual blocks whose branches begin at several scales, trained at several learning rates side by side."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, layer_norm, relu

from gnbook.shared.tuning import DIRECTIONS

Weights = dict[str, Tensor]

BLOCKS, UNITS, CLASSES = 16, 50, 10


class Chain(NamedTuple):
    """A residual network: the scale of its branches at initialisation, and how a block adds skip and branch."""

    start: float
    skip: float = 1.0
    shrink: float = 1.0
    norm: bool = False
    squeeze: float = 1.0


CHAINS: Mapping[str, Chain] = {
    "zero": Chain(0.0),
    "a quarter": Chain(1 / math.sqrt(BLOCKS)),
    "one": Chain(1.0),
    "one, size kept": Chain(1.0, shrink=math.sqrt(0.5)),
    "no skip": Chain(1.0, skip=0.0),
    "zero, squeezing skip": Chain(0.0, squeeze=1e5),
    "zero, hard squeezing skip": Chain(0.0, squeeze=1e12),
    "zero, normalised": Chain(0.0, norm=True),
    "a quarter, normalised": Chain(1 / math.sqrt(BLOCKS), norm=True),
    "one, normalised": Chain(1.0, norm=True),
}
"""`start` multiplies the last layer of each branch; a block is `shrink` times the sum of skip and branch; all skips one
after the other have the condition number `squeeze`."""


def drawn(chain: Chain, inputs: int, seed: int) -> Weights:
    """Return the first weights of one network, in single precision.

    A branch of strength one gives back, on average, as large a vector as it takes; a skip keeps it or squeezes it.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, variance: float) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float32) * math.sqrt(variance)

    weights = {
        "first": normal(UNITS, inputs, variance=2 / inputs),
        "inner": normal(BLOCKS, UNITS, UNITS, variance=2 / UNITS),
        "outer": normal(BLOCKS, UNITS, UNITS, variance=1 / UNITS) * chain.start,
        "last": normal(CLASSES, UNITS, variance=1 / UNITS),
    }
    biases = {"first": (UNITS,), "inner": (BLOCKS, UNITS), "outer": (BLOCKS, UNITS), "last": (CLASSES,)}
    return weights | {f"{name} bias": torch.zeros(shape, dtype=torch.float32) for name, shape in biases.items()}


@cache
def skip_of(chain: Chain) -> Tensor:
    """Return the matrix of the skip of each block, in double precision."""
    eye = torch.eye(UNITS, dtype=torch.float64)
    if chain.squeeze == 1:
        return chain.skip * eye
    generator = torch.Generator().manual_seed(50)
    directions = torch.linalg.qr(torch.randn(UNITS, UNITS, generator=generator, dtype=torch.float64)).Q
    stretch = torch.logspace(0, -math.log10(chain.squeeze), UNITS, dtype=torch.float64)
    stretch = (stretch / stretch.square().mean().sqrt()) ** (1 / BLOCKS)
    return directions * stretch @ directions.mT


def outputs(chain: Chain, weights: Weights, x: Tensor) -> Tensor:
    """Return the outputs of several networks, whose weights are stacked, each for images of its own."""
    skip = skip_of(chain).to(x)
    z = relu(_affine(weights, "first", x))
    for block in range(BLOCKS):
        seen = layer_norm(z, (UNITS,)) if chain.norm else z
        branch = _affine(weights, "outer", relu(_affine(weights, "inner", seen, block)), block)
        z = chain.shrink * (z @ skip + branch)
    return _affine(weights, "last", layer_norm(z, (UNITS,)) if chain.norm else z)


def condition_numbers(chain: Chain, weights: Weights, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return κ of each block, and of all blocks as one matrix, of a network without biases in the regions of images."""
    weights = {name: value.double() for name, value in weights.items()}
    skip, eye = skip_of(chain).to(x.device), torch.eye(UNITS, dtype=torch.float64, device=x.device)
    z = relu(x.double() @ weights["first"].mT)
    blocks, product = [], eye.expand(len(x), -1, -1)
    for inner, outer in zip(weights["inner"], weights["outer"], strict=True):
        seen, slope = z, eye.expand(len(x), -1, -1)
        if chain.norm:
            seen = layer_norm(z, (UNITS,))
            spread = (z.var(-1, correction=0) + 1e-5).sqrt()
            slope = (eye - 1 / UNITS - seen[:, :, None] * seen[:, None] / UNITS) / spread[:, None, None]
        hidden = seen @ inner.mT
        matrix = chain.shrink * (skip.mT + outer * (hidden > 0)[:, None] @ inner @ slope)
        z = chain.shrink * (z @ skip + relu(hidden) @ outer.mT)
        product = matrix @ product
        blocks.append(torch.linalg.cond(matrix))
    return torch.stack(blocks), torch.linalg.cond(product)


class Training(NamedTuple):
    """Results of the trainings of one network: a row for each seed, a column for each rate."""

    steps: dict[float, Tensor]
    correct: Tensor


def trainings(
    chain: Chain,
    optimizer: str,
    images: tuple[Tensor, Tensor],
    held_out: tuple[Tensor, Tensor],
    rates: Sequence[float],
    seeds: Sequence[int],
    most_steps: int,
) -> Training:
    """Train one network from each seed at each rate, in batches of 50, by SGD with momentum 0.9 or by Adam.

    The steps are those after which the loss on all images, looked at after every fifth, is first below a tenth and a
    hundredth; `correct` is the share of the images held out that are told right at the end.
    """
    x, y = images
    starts = [drawn(chain, x.shape[1], seed) for seed in seeds for _ in rates]
    weights = {name: torch.stack([start[name] for start in starts]).to(x.device) for name in starts[0]}
    direction = DIRECTIONS["momentum" if optimizer == "SGD" else "adam"]
    rate = torch.tensor(list(rates) * len(seeds), dtype=torch.float32, device=x.device)
    first, second = ({name: torch.zeros_like(value) for name, value in weights.items()} for _ in range(2))
    generators = [torch.Generator().manual_seed(100 + seed) for seed in seeds]
    steps = {target: torch.full((len(rate),), math.inf) for target in (0.1, 0.01)}
    for step in range(most_steps + 1):
        if step % 5 == 0:
            with torch.no_grad():
                loss = _losses(outputs(chain, weights, x.expand(len(rate), -1, -1)), y.expand(len(rate), -1)).cpu()
            for target, reached in steps.items():
                reached[(loss < target) & reached.isinf()] = step
        batch = torch.stack([torch.randint(len(x), (50,), generator=generator) for generator in generators])
        batch = batch.repeat_interleave(len(rates), 0).to(x.device)
        held = {name: value.requires_grad_() for name, value in weights.items()}
        total = _losses(outputs(chain, held, x[batch]), y[batch]).sum()
        slopes = torch.autograd.grad(total, list(held.values()))
        for name, slope in zip(weights, slopes, strict=True):
            moved = direction(slope.nan_to_num(0, 0, 0), first[name], second[name], step + 1)
            weights[name] = (held[name] - rate.reshape(-1, *[1] * (slope.ndim - 1)) * moved).detach()
    with torch.no_grad():
        told = outputs(chain, weights, held_out[0].expand(len(rate), -1, -1)).argmax(-1)
    correct = (told == held_out[1]).double().mean(1).cpu()
    shape = (len(seeds), len(rates))
    return Training({target: reached.reshape(shape) for target, reached in steps.items()}, correct.reshape(shape))


def _affine(weights: Weights, name: str, x: Tensor, block: int | None = None) -> Tensor:
    matrix, bias = weights[name], weights[f"{name} bias"]
    if block is not None:
        matrix, bias = matrix[:, block], bias[:, block]
    return torch.baddbmm(bias[:, None], x, matrix.mT)


def _losses(told: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(told.transpose(1, 2), labels, reduction="none").mean(1)

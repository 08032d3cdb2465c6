"""Deep linear networks `f(x) = W_L ... W_1 x`, with or without skips."""

import math
from collections.abc import Sequence
from itertools import pairwise
from numbers import Integral

import torch
from jaxtyping import Float
from torch import Tensor


def linear_weights(widths: Sequence[int], *, generator: torch.Generator) -> list[Tensor]:
    """Draw the weights of a linear network at Kaiming normal initialisation of gain 1.

    For the widths `[d, m_1, ..., k]` they are of shape `(out, in)`, input layer first, on the device of the generator,
    with independent entries of standard deviation `1 / sqrt(in)`.

    Examples
    --------
    >>> import torch
    >>> weights = linear_weights([3, 5, 2], generator=torch.Generator().manual_seed(0))
    >>> [tuple(w.shape) for w in weights]
    [(5, 3), (2, 5)]
    """
    if len(widths) < 2 or any(not isinstance(w, Integral) or w < 1 for w in widths):
        raise ValueError(f"widths is {list(widths)}; give at least two integers from 1 on, [inputs, ..., outputs].")
    return [
        torch.randn(out, fan_in, generator=generator, device=generator.device, dtype=torch.float64) / fan_in**0.5
        for fan_in, out in pairwise(widths)
    ]


def linear_network(weights: Sequence[Tensor], x: Float[Tensor, "n d"], skip: float = 0.0) -> Float[Tensor, "n k"]:
    """Return the outputs of the network, with `skip * eye(out, in)` added to every weight (Zhao 2024, section 4.3).

    Examples
    --------
    >>> import torch
    >>> linear_network([2 * torch.eye(2), torch.ones(1, 2)], torch.tensor([[1.0, 2.0]]), skip=1.0)
    tensor([[12.]])
    """
    for w in add_skip(weights, skip):
        x = x @ w.mT
    return x


def add_skip(weights: Sequence[Tensor], skip: float) -> list[Tensor]:
    """Return the weights with `skip` times the rectangular identity added to each."""
    skip = as_skip(skip)
    return [w + skip * torch.eye(*w.shape, dtype=w.dtype, device=w.device) if skip else w for w in weights]


def as_skip(skip: float) -> float:
    """Return the weight of a skip as a float, or raise a ValueError if it is not finite."""
    if not math.isfinite(skip):
        raise ValueError(f"skip is {skip}; a finite number was expected, such as 1 (0 for a network without skips).")
    return float(skip)

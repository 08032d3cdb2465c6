r"""The networks of the chapter: five activations at their critical gain, as chains, with skips, or normalised.

The gain keeps the variance of standard normal values: :math:`g^2\, E \varphi(z)^2 = 1`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from gnbook.deep_nonlinear.chain import Skip, random_chain
from gnbook.deep_nonlinear.duals import Dual, hermite_coefficients, leaky_relu, smooth
from gnbook.deep_nonlinear.wide_limit import standard_factors, wide_kernel
from gnlib.checks import as_samples


class Activation(NamedTuple):
    """An activation as a module, and its moments on pairs of Gaussian values."""

    module: Callable[[], nn.Module]
    gain: float
    dual: Dual


def _smooth(module: Callable[[], nn.Module], function: Callable[[Tensor], Tensor]) -> Activation:
    one = torch.ones(1, dtype=torch.float64, device="cpu")
    return Activation(module, 1 / hermite_coefficients(function, one).norm().item(), smooth(function))


def _leaky(slope: float) -> Activation:
    return Activation(partial(nn.LeakyReLU, slope), (2 / (1 + slope**2)) ** 0.5, leaky_relu(slope))


ACTIVATIONS: dict[str, Activation] = {
    "ReLU": _leaky(0.0)._replace(module=nn.ReLU),
    "leaky ReLU": _leaky(0.3),
    "GELU": _smooth(nn.GELU, functional.gelu),
    "tanh": _smooth(nn.Tanh, torch.tanh),
    "linear": _leaky(1.0)._replace(module=nn.Identity),
}

SHAPES: dict[str, Callable[[int], float] | None] = {
    "chain": None,
    "skips": lambda depth: 1.0,
    "skips / root of L": lambda depth: depth**-0.5,
    "skips / L": lambda depth: 1 / depth,
    "LayerNorm": None,
}
"""How layers stand together, and the factor of the branches that skips pass, by the number L of layers of weights."""


def network(activation: str, shape: str, widths: Sequence[int], *, generator: torch.Generator) -> nn.Sequential:
    r"""Draw a network of one of `ACTIVATIONS` in one of `SHAPES`, with independent normal weights and without biases.

    With skips hidden layers from the second on are :math:`z_l = z_{l-1} + \beta W_l\, \varphi(z_{l-1})`, and
    `LayerNorm` normalises the input of each activation. `widths` are `[d, m, ..., m, k]`.
    """
    module, gain, _ = ACTIVATIONS[activation]
    chain = random_chain(widths, module, gain=gain, generator=generator)
    first, *inner, last = chain[::2]
    if factor := SHAPES[shape]:
        skips = (Skip(nn.Sequential(module(), layer), factor(len(widths) - 1)) for layer in inner)
        return nn.Sequential(first, *skips, module(), last)
    if shape == "LayerNorm":
        norms = (nn.Sequential(nn.LayerNorm(m, elementwise_affine=False), module()) for m in widths[1:-1])
        return nn.Sequential(first, *(part for pair in zip(norms, [*inner, last], strict=True) for part in pair))
    return chain


def limit_kernel(activation: str, shape: str, widths: Sequence[int], x: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    """Return the tangent kernel that such networks tend to as their hidden layers grow, scaled as at these widths."""
    _, gain, dual = ACTIVATIONS[activation]
    factor = SHAPES[shape]
    if shape == "LayerNorm":  # units of the first layer have variance one, and the critical gain keeps it
        x = widths[0] ** 0.5 / gain * functional.normalize(as_samples(x))
    branch = factor(len(widths) - 1) if factor else None
    return wide_kernel(x, dual, standard_factors(widths, gain), gain=gain, branch=branch)

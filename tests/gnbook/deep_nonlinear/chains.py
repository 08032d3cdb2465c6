"""Chains that the bounds are tried on, hostile ones among them, and an oracle of their kernel."""

from itertools import pairwise

import torch
from gnbook.deep_nonlinear.chain import Skip
from hypothesis import strategies as st
from torch import nn

from tests.strategies import derivatives, gaussian, seeds


def entrywise(function):
    """A module for a function that torch has no module for."""
    module = nn.Module()
    module.forward = function
    return module


ACTIVATIONS = [
    nn.ReLU,
    lambda: nn.ReLU(inplace=True),
    lambda: nn.LeakyReLU(0.1),
    nn.Tanh,
    nn.GELU,
    nn.Softplus,
    nn.Identity,
    lambda: entrywise(torch.sin),
    lambda: entrywise(torch.abs),
    lambda: entrywise(torch.square),
]


def linear(fan_in, out, seed, *, bias=False, scale=1.0):
    """A layer in double precision, whatever torch's global generator is at."""
    layer = nn.Linear(fan_in, out, bias=bias, device="meta")
    layer.weight = nn.Parameter(scale * gaussian(seed, out, fan_in) / fan_in**0.5)
    if bias:
        layer.bias = nn.Parameter(scale * gaussian(seed + 1, out))
    return layer


def chain(widths, activation, *, bias=False, scales=None, seed=0):
    """A plain chain: layers of weights with an activation between any two of them."""
    modules = []
    for index, (shape, scale) in enumerate(zip(pairwise(widths), scales or [1.0] * len(widths[1:]), strict=True)):
        modules += [linear(*shape, seed + 10 * index, bias=bias, scale=scale), activation()]
    return nn.Sequential(*modules[:-1])


@st.composite
def chains(draw):
    """Draw a chain and samples: of any scale, near to each other, dead, with normalisation or skips."""
    n, d, k, depth = (draw(st.integers(1, most)) for most in (5, 5, 3, 5))
    widths = [d, *(draw(st.integers(1, 8)) for _ in range(depth - 1)), k]
    scale = st.sampled_from([1e-2, 0.3, 1.0, 1.0, 3.0, 30.0])
    activation, bias, seed = draw(st.sampled_from(ACTIVATIONS)), draw(st.booleans()), draw(seeds)
    network = chain(widths, activation, bias=bias, scales=[draw(scale) for _ in widths[1:]], seed=seed % 2**31)
    modules, kind = list(network), draw(st.sampled_from(["plain", "plain", "normalised", "skip", "dead", "no weight"]))
    hidden = draw(st.integers(0, len(modules) // 2))  # the layer that is changed
    inputs = modules[2 * hidden].in_features
    if kind == "normalised":
        modules.insert(2 * hidden, nn.LayerNorm(inputs, eps=1e-3, elementwise_affine=False))
    elif kind == "skip":
        factor = draw(st.sampled_from([1e-3, 0.5, 1.0, -1.0, 10.0]))
        modules.insert(2 * hidden, Skip(chain([inputs, 3, inputs], activation, bias=bias, seed=seed % 999), factor))
    elif kind in ("dead", "no weight"):
        with torch.no_grad():
            modules[2 * hidden].weight[:: 2 if kind == "dead" else 1] = 0.0
    x = gaussian(seed % 2**31 + 5, n, d) * draw(scale)
    spoilt = draw(st.sampled_from(["free", "free", "near", "equal", "zero", "graded"]))
    if spoilt in ("near", "equal"):
        x = x[:1] + (draw(st.sampled_from([1e-6, 1e-3, 0.1])) if spoilt == "near" else 0) * x
    elif spoilt == "zero":
        x[0] = 0.0
    elif spoilt == "graded":
        x *= 10.0 ** -torch.arange(n, dtype=torch.float64)[:, None]
    return nn.Sequential(*modules), x


def jacobian(network, x):
    """The Jacobian of all outputs by all parameters, sample-major."""
    return derivatives(network(x.clone()), tuple(network.parameters()))


def spectrum(network, x):
    """All nk eigenvalues of the Gauss-Newton matrix in its Gram form, descending, from singular values."""
    rows = jacobian(network, x)
    values = torch.linalg.svdvals(rows) ** 2 / len(x)
    return torch.cat([values, values.new_zeros(len(rows) - len(values))])


def on_a_sphere(n, d, seed=0):
    return d**0.5 * torch.nn.functional.normalize(gaussian(seed, n, d))

"""Networks and oracles for the claims on piecewise linear maps."""

import torch
from gnbook.shared.piecewise_linear import Layer, SkipLayer
from hypothesis import assume
from hypothesis import strategies as st
from torch import nn

from tests.oracles import singular
from tests.strategies import gaussian, kron, matrices, samples, seeds, sizes

SLOPES = [-1.0, -0.3, 0.0, 0.1, 1.0]
slopes = st.sampled_from(SLOPES)


@st.composite
def squares_of(draw):
    """Draw two square matrices of one size, hostile ones among them."""
    n = draw(sizes)
    return draw(matrices(n, n)), draw(matrices(n, n))


@st.composite
def networks(draw, skips=True, square=False, deepest=3):
    """Draw layers, dead, linear and residual ones among them, and samples."""
    d, n = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    layers, width = [], d
    for _ in range(draw(st.integers(1, deepest))):
        skip = draw(st.sampled_from([0.0, 0.0, 1.0, -0.5])) if skips else 0.0
        out = width if skip or square else draw(st.integers(1, 4))
        weight = draw(matrices(out, width)) if draw(st.booleans()) else gaussian(draw(seeds), out, width)
        bias = gaussian(draw(seeds), out) * draw(st.sampled_from([0, 1, 1]))
        layers.append(Layer(weight, bias, draw(slopes), skip))
        width = out
    return layers, gaussian(draw(seeds), n, d)


@st.composite
def quadratics(draw, same=False, most=4):
    """Draw matrices MD and inputs z of a few samples; if same, one MD for all of them."""
    n, k, m, d = (draw(st.integers(1, most)) for _ in range(4))
    products = [draw(matrices(k, m)) for _ in range(1 if same else n)] * (n if same else 1)
    z = draw(samples(d))[:n]
    z = torch.cat([z, gaussian(draw(seeds), n - len(z), d)]) if len(z) < n else z
    assume(z.abs().max() > 0)
    return torch.stack(products), z


def phi(t, slope):
    return torch.maximum(t, slope * t)


def forward(layers, z):
    """The network as Riedi 2022, Eq. 1, has it, with samples in rows."""
    for weight, bias, slope, skip in layers:
        t = phi(z @ weight.mT + bias, slope)
        z = t + skip * z if skip else t
    return z


def as_module(layers):
    return nn.Sequential(*(SkipLayer(*layer) for layer in layers))


def pseudo_condition(matrix):
    """Ratio of singular values, the zeros left out."""
    s = singular(matrix)
    s = s[s > 1e-9 * s[0]]
    return (s[0] / s[-1]).item()


def true_q(products, z):
    """A matrix Q with |Q w|^2 the quadratic term of the loss, for weights row by row, from its definition."""
    rows = [kron(x, row[None]) for x, row in zip(products, z, strict=True)]
    return torch.cat(rows) / len(z) ** 0.5


def family(seed, n):
    """A polynomial family of matrices and its derivative."""
    parts = [gaussian(seed + i, n, n) for i in range(3)]
    return (lambda rho: parts[0] + rho * parts[1] + rho**2 * parts[2], lambda rho: parts[1] + 2 * rho * parts[2])

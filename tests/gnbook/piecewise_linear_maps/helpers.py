"""Networks and oracles for the claims on piecewise linear maps."""

import torch
from gnbook.shared.piecewise_linear import Layer, SkipLayer
from hypothesis import strategies as st
from torch import nn

from tests.oracles import singular
from tests.strategies import gaussian, matrices, seeds


@st.composite
def networks(draw, skips=True, square=False):
    """Draw layers, dead, linear and residual ones among them, and samples."""
    d, n = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    layers, width = [], d
    for _ in range(draw(st.integers(1, 3))):
        skip = draw(st.sampled_from([0.0, 0.0, 1.0, -0.5])) if skips else 0.0
        out = width if skip or square else draw(st.integers(1, 4))
        weight = draw(matrices(out, width)) if draw(st.booleans()) else gaussian(draw(seeds), out, width)
        bias = gaussian(draw(seeds), out) * draw(st.sampled_from([0, 1, 1]))
        layers.append(Layer(weight, bias, draw(st.sampled_from([-1.0, -0.3, 0.0, 0.1, 1.0])), skip))
        width = out
    return layers, gaussian(draw(seeds), n, d)


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
    return (s[0] / s[s > 1e-9 * s[0]][-1]).item()

"""Convolutional networks that the claims are tried on, and their oracles."""

import torch
from hypothesis import assume
from hypothesis import strategies as st
from torch.nn import functional

from tests.strategies import derivatives, gaussian, nonzero_eigenvalues, samples, seeds

CONVOLVE = {1: functional.conv1d, 2: functional.conv2d}


def outputs(filters, x, strides=None, paddings=None):
    """Return the outputs of the network by torch alone."""
    for i, w in enumerate(filters):
        stride, padding = strides[i] if strides else 1, paddings[i] if paddings else 0
        x = CONVOLVE[x.ndim - 2](x, w, stride=stride, padding=padding)
    return x


def shared_jacobian(filters, x, strides=None, paddings=None):
    """Return the derivative of all outputs by the filters, sample-major, from automatic differentiation alone."""
    filters = [w.clone().requires_grad_() for w in filters]
    return derivatives(outputs(filters, x, strides, paddings), filters)


def true_values(filters, x, strides=None, paddings=None):
    return nonzero_eigenvalues(shared_jacobian(filters, x, strides, paddings), len(x))


@st.composite
def some_filters(draw, *shape):
    """Draw the filters of a layer, in general position or not."""
    seed, kind = draw(seeds), draw(st.sampled_from(["gaussian", "integer", "scaled", "one tap", "all equal", "zero"]))
    w = gaussian(seed, *shape)
    if kind == "integer":
        return w.round()
    if kind == "scaled":
        return w * draw(st.sampled_from([1e-2, 1e2]))
    if kind == "one tap":
        return torch.where(torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.3, w, 0)
    if kind == "all equal":
        return w[:1, :1].expand(shape).clone()
    return w * (kind != "zero")


@st.composite
def networks(draw, depth=(1, 3), axes=(1, 2), strides=3, padding=2, channels=4, hidden=None, inputs=3):
    """Draw a linear convolutional network and data for it."""
    depth, axes = draw(st.integers(*depth)), draw(st.integers(*axes))
    kernels = [[draw(st.integers(1, 3)) for _ in range(axes)] for _ in range(depth)]
    stride, pad = ([draw(st.integers(*ends)) for _ in range(depth)] for ends in ((1, strides), (0, padding)))
    size = [draw(st.integers(1, 8 if axes == 1 else 4)) for _ in range(axes)]
    at = size
    for kernel, s, p in zip(kernels, stride, pad, strict=True):
        assume(all(q + 2 * p >= k for q, k in zip(at, kernel, strict=True)))
        at = [(q + 2 * p - k) // s + 1 for q, k in zip(at, kernel, strict=True)]
    inner = st.integers(1, channels) if hidden is None else hidden
    counts = [draw(st.integers(1, inputs)), *(draw(inner) for _ in range(depth - 1)), draw(st.integers(1, 2))]
    filters = [draw(some_filters(counts[i + 1], counts[i], *kernels[i])) for i in range(depth)]
    flat = draw(samples(counts[0] * torch.Size(size).numel()))
    return filters, flat.reshape(len(flat), counts[0], *size), stride, pad


def condition(filters, x, *how):
    values = true_values(filters, x, *how)
    return (values[0] / values[-1]).item() if len(values) else None

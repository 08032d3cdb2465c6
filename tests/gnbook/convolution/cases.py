"""Convolutional networks for the tests."""

from hypothesis import assume, settings
from hypothesis import strategies as st
from torch.nn import functional

from tests.oracles import normal

CONVOLVE = {1: functional.conv1d, 2: functional.conv2d}
many = settings(deadline=None, max_examples=60, derandomize=True)


def network(filters, x, strides, paddings):
    """The same network by torch alone."""
    for w, s, p in zip(filters, strides, paddings, strict=True):
        x = CONVOLVE[x.ndim - 2](x, w, stride=s, padding=p)
    return x


def fits(size, kernels, strides, paddings):
    for kernel, s, p in zip(kernels, strides, paddings, strict=True):
        if any(q + 2 * p < k for q, k in zip(size, kernel, strict=True)):
            return False
        size = [(q + 2 * p - k) // s + 1 for q, k in zip(size, kernel, strict=True)]
    return True


@st.composite
def networks(draw, axes, deepest=3, padded=True):
    """Draw filters, samples, strides and paddings of a network that fits together."""
    depth = draw(st.integers(1, deepest))
    size = draw(st.lists(st.integers(1, 9 if axes == 1 else 5), min_size=axes, max_size=axes))
    kernels = [draw(st.lists(st.integers(1, 4), min_size=axes, max_size=axes)) for _ in range(depth)]
    strides, paddings = ([draw(st.integers(*ends)) for _ in range(depth)] for ends in ((1, 3), (0, 2 if padded else 0)))
    assume(fits(size, kernels, strides, paddings))
    channels = draw(st.lists(st.integers(1, 3), min_size=depth + 1, max_size=depth + 1))
    seed, n = draw(st.integers(0, 2**20)), draw(st.sampled_from([1, 2, 30]))
    filters = [normal(channels[i + 1], channels[i], *kernels[i], seed=seed + i) for i in range(depth)]
    return filters, normal(n, channels[0], *size, seed=seed + depth), strides, paddings

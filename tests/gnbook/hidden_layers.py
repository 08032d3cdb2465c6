"""Networks with one hidden layer for the tests: large ones, and ones of small integers."""

import pytest
import torch
from hypothesis import strategies as st

from tests.oracles import network, samples
from tests.strategies import seeds

LARGE = [(3, 2, 1, 513), (3, 4, 1, 1100), (2, 3, 4, 300), (3, 2, 600, 3), (7, 5, 11, 46)]  # d, m, k, n
large = pytest.mark.parametrize("shape", LARGE)  # the matrix is built for 512 / k samples at a time


def case(shape):
    """A network of this size, and samples."""
    d, m, k, n = shape
    return network((d, m, k), seed=1), samples(n, d, seed=2)


@st.composite
def problems(draw):
    """Draw a network and data of small integers: zero, repeated and opposite hidden values are common."""
    d, m, k, n = (draw(st.integers(1, most)) for most in (3, 4, 3, 6))
    generator = torch.Generator().manual_seed(draw(seeds))
    v, w, x = (torch.randint(-3, 4, shape, generator=generator).double() for shape in ((m, d), (k, m), (n, d)))
    return [v, w], x


def assert_equal_to(gram, expected, tolerance=1e-10):
    torch.testing.assert_close(gram, expected, rtol=0, atol=tolerance * expected.abs().max().item())

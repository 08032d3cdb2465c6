"""Networks with one hidden layer for the tests: sizes, kinds of samples, and what is no such network."""

import pytest
import torch
from hypothesis import strategies as st

from tests.oracles import network, samples

LARGE = [(3, 2, 1, 513), (3, 4, 1, 1100), (2, 3, 4, 300), (3, 2, 600, 3), (7, 5, 11, 46)]
large = pytest.mark.parametrize("shape", LARGE)  # the matrix is built for 512 / k samples at a time


def case(shape):
    """A network of this size, and samples."""
    d, m, k, n = shape
    return network((d, m, k), seed=1), samples(n, d, seed=2)


def integers(rows, columns):
    row = st.lists(st.integers(-3, 3), min_size=columns, max_size=columns)
    return st.lists(row, min_size=rows, max_size=rows).map(lambda entries: torch.tensor(entries, dtype=torch.float64))


@st.composite
def problems(draw):
    """Draw a network and data of small integers: zero, repeated and opposite hidden values are common."""
    d, m, k, n = (draw(st.integers(1, most)) for most in (3, 4, 3, 6))
    return [draw(integers(m, d)), draw(integers(k, m))], draw(integers(n, d))


def assert_equal_to(gram, expected, tolerance=1e-10):
    torch.testing.assert_close(gram, expected, rtol=0, atol=tolerance * expected.abs().max().item())

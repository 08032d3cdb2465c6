"""Networks with one hidden layer for the tests: sizes, kinds of samples, and what is no such network."""

import pytest
import torch
from hypothesis import strategies as st

from tests.oracles import network, normal, samples

SHAPES = [  # d, m, k, n
    (1, 1, 1, 2),
    (1, 4, 2, 6),
    (3, 1, 1, 7),
    (3, 1, 4, 5),
    (4, 6, 1, 9),
    (6, 2, 3, 4),
    (8, 5, 2, 3),
    (2, 7, 3, 12),
    (4, 3, 5, 2),
    (3, 9, 4, 8),
]
SPECIAL = ["plain", "constant feature", "repeated samples", "a sample at zero", "low rank", "off centre"]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "-".join(map(str, s)))
special = pytest.mark.parametrize("kind", SPECIAL)
LARGE = [(3, 2, 1, 513), (3, 4, 1, 1100), (2, 3, 4, 300), (3, 2, 600, 3), (7, 5, 11, 46)]
large = pytest.mark.parametrize("shape", LARGE)  # the matrix is built for 512 / k samples at a time

GOOD = (torch.ones(3, 2), torch.ones(4, 3))
X = torch.eye(2)
REFUSED = [
    ([], X, "weights is empty"),
    (GOOD[:1], X, "weights has 1 matrices; two were expected"),
    ([*GOOD, torch.ones(2, 4)], X, r"weights has 3 matrices; two were expected, \(m, d\) and \(k, m\)"),
    (GOOD[::-1], X, r"weights\[1\] takes 2 inputs but weights\[0\] gives 4 outputs"),
    ([GOOD[0], torch.full((4, 3), torch.nan)], X, r"weights\[1\] has 12 entries that are NaN"),
    ([torch.ones(3), GOOD[1]], X, r"weights\[0\] has shape \(3,\)"),
    (GOOD, torch.ones(5, 3), r"x has 3 features but weights\[0\] takes 2 inputs"),
    (GOOD, torch.ones(2), r"x has shape \(2,\); samples in rows"),
    (GOOD, torch.empty(0, 2), r"x is empty \(shape \(0, 2\)\)"),
    (GOOD, X / 0, "x has 4 entries that are NaN or infinite"),
]
refused = pytest.mark.parametrize("weights, x, message", REFUSED)


def case(shape, kind="plain"):
    """A network of this size, and samples of this kind."""
    d, m, k, n = shape
    x = samples(n, d, rank=2 if kind == "low rank" else None, seed=2)
    if kind == "constant feature":
        x[:, 0] = 0.7
    elif kind == "repeated samples":
        x[n // 2] = x[0]
    elif kind == "a sample at zero":
        x[0] = 0
    elif kind == "off centre":
        x += 100
    return network((d, m, k), seed=1), x


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


def assert_follows_the_order_of_samples_outputs_and_units(gram):
    (v, w), x = case((4, 6, 3, 9))
    sample, output, unit = (normal(size, seed=size).argsort() for size in (9, 3, 6))
    rows = (sample[:, None] * 3 + output).flatten()
    expected = gram([v, w], x)[rows][:, rows]
    assert_equal_to(gram([v[unit], w[output][:, unit]], x[sample]), expected, 1e-14)


def assert_takes_single_precision_and_parameters(gram):
    weights, x = case((4, 6, 3, 9))
    single = [w.float() for w in weights]
    expected = gram([w.double() for w in single], x.float().double())
    result = gram([torch.nn.Parameter(w) for w in single], x.float())
    assert result.dtype == torch.float64
    assert torch.equal(result, expected)

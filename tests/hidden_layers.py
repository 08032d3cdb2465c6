"""Networks with one hidden layer for the tests: sizes, kinds of samples, and what is no such network."""

import pytest
import torch

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

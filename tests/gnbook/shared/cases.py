"""Piecewise linear networks that the tests of several modules are on."""

import pytest
import torch
from gnbook.shared.piecewise_linear import SkipLayer
from torch import nn

from tests.oracles import normal

SHAPES = [  # widths, slopes, skips
    ([2, 3], [0.0], [0.0]),
    ([1, 1, 1], [0.1, 0.1], [1.0, 1.0]),
    ([2, 3, 4, 4], [0.1, 0.1, 0.1], [0.0, 0.0, 0.0]),
    ([2, 6, 6, 6, 6], [0.1, 0.1, 0.1, 0.1], [0.0, 0.0, 0.7, 0.0]),
    ([4, 4, 4], [-1.0, -1.0], [1.0, 0.5]),
    ([3, 5, 2], [0.0, 1.0], [0.0, 0.0]),
    ([5, 1, 5], [-0.5, 1.0], [0.0, 0.0]),
    ([3, 3, 3, 3], [1.0, 1.0, 1.0], [0.0, -1.0, 2.0]),
    ([6, 20, 3], [0.0, 0.0], [0.0, 0.0]),
]
cases = pytest.mark.parametrize("case", SHAPES, ids=lambda c: "-".join(map(str, c[0])))
seeds = pytest.mark.parametrize("seed", range(2))


def network(case, seed):
    widths, slopes, skips = case
    return nn.Sequential(
        *(
            SkipLayer(normal(out, fan_in, seed=10 * seed + i), normal(out, seed=500 + 10 * seed + i), slope, skip)
            for i, (fan_in, out, slope, skip) in enumerate(zip(widths, widths[1:], slopes, skips, strict=False))
        )
    )


def close(found, expected, scale=1.0):
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12 * float(scale))

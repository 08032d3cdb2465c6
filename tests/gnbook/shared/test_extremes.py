"""Extreme eigenvalues of a matrix times its transpose, and where the smallest is nothing but rounding."""

import pytest
import torch
from gnbook.shared.extremes import resolved_squares

from tests.oracles import orthogonal


def test_a_small_singular_value_is_resolved_and_rounding_is_not():
    q = orthogonal(3, 3, seed=0)
    for least, expected in ((1e-10, 1e-20), (1e-17, 0.0)):
        matrix = q @ torch.tensor([1.0, 1.0, least], dtype=torch.float64).diag()
        largest, smallest = resolved_squares(matrix)
        assert largest.item() == pytest.approx(1) and smallest.item() == pytest.approx(expected, rel=1e-4, abs=0)

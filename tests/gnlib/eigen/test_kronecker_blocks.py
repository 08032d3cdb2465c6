"""Kronecker sums as coupled blocks: the guess, and what their coupling costs."""

import pytest
import torch

from gnlib import linear_gauss_newton
from gnlib.eigen.kronecker_blocks import KroneckerBlocks
from gnlib.eigen.result import Limits
from tests.gnlib.eigen.helpers import both
from tests.oracles import network


@both
def test_the_guess_at_the_crowded_end_of_a_block_saves_the_steps(largest):
    weights = network((400, 500, 1), seed=0)
    op = linear_gauss_newton(weights, torch.eye(400, dtype=torch.float64))
    pair = KroneckerBlocks(op.left, op.right, largest=largest).find_end(largest=largest, limits=Limits())
    values = torch.linalg.eigvalsh(op.dense())
    assert pair.value == pytest.approx(values[-1 if largest else 0].item(), rel=1e-10)
    assert pair.steps <= 2


def test_the_error_of_a_smallest_value_allows_for_the_coupling_of_the_outputs():
    s = torch.tensor([1.0, 1.001, 2.0, 3.0], dtype=torch.float64)
    coupled = torch.tensor([[1.0, 0.75], [0.75, 1.0]], dtype=torch.float64)
    left = torch.stack([1e-9 * torch.eye(2).double(), coupled])
    blocks = KroneckerBlocks(left, s.diag().expand(2, -1, -1), largest=False)
    # antisymmetric in the outputs, where the matrix is a quarter of its blocks, and halfway between two eigenvectors
    x = torch.tensor([1.0, 1, 0, 0, -1, -1, 0, 0], dtype=torch.float64)[:, None] / 2
    value = x.mT @ blocks.apply(x)
    residual = blocks.apply(x) - value * x
    error = blocks.lower_errors(value[0], residual, residual / s.repeat(2)[:, None], 0.0)
    assert error.item() == pytest.approx(1 - 0.25 / value.item(), rel=1e-4)

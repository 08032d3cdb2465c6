"""The (2, 2, 1) norm of tensors."""

import pytest
import torch
from gnbook.transition_to_linearity.tensor_norm import norm_221

from tests.gnbook.transition_to_linearity.cases import gaussian


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 1, 2), (1, 4, 14), (4, 1, 14), (2, 2, 13)])
def test_the_221_norm_of_tensors_of_many_shapes(shape):
    tensor = gaussian(0, *shape)
    bounds = norm_221(tensor)
    if 1 in shape[:2]:  # a matrix: sup of |A x|_1 over unit x, the largest norm of a signed sum of rows
        assert bounds.lower <= bounds.upper * (1 + 1e-12)
    if shape == (1, 1, 1):
        assert bounds.lower == bounds.upper == pytest.approx(tensor.abs().item())
    assert norm_221(torch.zeros(shape)) == (0, 0)


def test_a_norm_is_as_small_as_its_tensor():
    tensor = gaussian(0, 2, 2, 13)
    assert norm_221(tensor * 1e-3) == pytest.approx([1e-3 * bound for bound in norm_221(tensor)])

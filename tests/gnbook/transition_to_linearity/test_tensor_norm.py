"""The norm of a tensor of second derivatives."""

import pytest
from gnbook.transition_to_linearity.tensor_norm import norm_221

from tests.oracles import normal


def test_the_norm_of_many_slices_is_as_large_as_the_tensor():
    tensor = normal(3, 3, 20, seed=0)
    assert norm_221(1e-3 * tensor).lower == pytest.approx(1e-3 * norm_221(tensor).lower, rel=1e-9)

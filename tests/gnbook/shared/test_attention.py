"""Attention, beside torch's own."""

import pytest
import torch
from gnbook.shared.attention import Attention
from torch import nn

from tests.strategies import gaussian


def test_it_is_that_of_torch():
    torch.manual_seed(0)
    ours, theirs = Attention(6, 2).double(), nn.MultiheadAttention(6, 2, batch_first=True).double()
    with torch.no_grad():
        parts = ours.query, ours.key, ours.value
        theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    theirs.out_proj.load_state_dict(ours.out.state_dict())
    tokens = gaussian(1, 3, 4, 6)
    torch.testing.assert_close(ours(tokens), theirs(tokens, tokens, tokens)[0], rtol=1e-12, atol=1e-14)


@pytest.mark.bad_input
def test_heads_that_do_not_divide_the_width():
    with pytest.raises(ValueError, match="width is 6 and heads is 4; a number of heads that divides it was expected"):
        Attention(6, 4)

"""Samples that a network does not tell apart: only those with equal inputs may be dropped."""

import pytest
import torch
from torch import nn

from gnlib import GaussNewton

OFF = -100.0  # a bias that no input makes up for


class Texts(nn.Module):
    """Tokens whose mean is all that counts; a text and its permutation are not told apart."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(9, 4), nn.Linear(4, 2)

    def forward(self, tokens):
        return self.head(self.embed(tokens).mean(1).tanh())


TEXTS = torch.tensor([[1, 2, 3], [3, 2, 1], [4, 5, 6], [4, 5, 6], [7, 8, 0], [2, 2, 4]])


def test_texts_that_differ_are_kept_and_equal_ones_dropped():
    torch.manual_seed(8)
    g = GaussNewton(Texts(), TEXTS)
    found = g.culprits()
    pairs = {(pair.first, pair.second): pair.equal for pair in found.equal_samples}
    assert pairs == {(2, 3): True, (0, 1): False}
    assert found.equal_samples[0].equal  # first, so that no number of other pairs hides it
    assert "samples 2 and 3 are equal: drop one of them" in str(found)
    assert "the network does not tell 0 and 1 apart yet: their inputs differ: keep both" in str(found)


def test_samples_that_no_unit_tells_apart_are_one_line():
    torch.manual_seed(9)
    net, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(8, 3)
    nn.init.constant_(net[0].bias, OFF)
    g = GaussNewton(net, x)
    lines = [line for line in str(g.culprits()).splitlines() if "apart" in line]
    assert len(lines) == 1 and lines[0].startswith("the network does not tell 0 and 1, 0 and 2")


@pytest.mark.parametrize("kind", ["batches", "dict", "signed zero"])
def test_equal_inputs_are_equal_however_they_are_passed(kind):
    torch.manual_seed(10)
    x = torch.randn(6, 3).double()
    x[4], x[0, 0] = x[1], 0.0
    net: nn.Module = nn.Linear(3, 2)
    given = {"batches": [x[:2], x[2:]], "signed zero": x}.get(kind, x)
    if kind == "dict":
        net, given = nn.Bilinear(3, 2, 2), {"input1": x, "input2": x[:, :2]}
    if kind == "signed zero":
        x[4] = x[0]
        x[4, 0] = -0.0
    pairs = GaussNewton(net, given).culprits().equal_samples
    assert [(pair.first, pair.second, pair.equal) for pair in pairs] == [(0 if kind == "signed zero" else 1, 4, True)]

"""What "Residual networks" says in passing is so."""

import pytest
import torch

import gnlib
from tests.book.pages import prose
from tests.strategies import gaussian


@pytest.mark.parametrize("depth", [2, 5])
def test_weak_branches_are_strong_skips(depth):
    x, identity = gaussian(0, 40, 12), torch.eye(12).double()
    weights = [gaussian(seed, 12, 12) / 12**0.5 for seed in range(1, depth + 1)]
    weak, strong = (
        float(gnlib.condition_number(gnlib.linear_gauss_newton(layers, gnlib.second_moment(x))))
        for layers in ([identity + w / depth**0.5 for w in weights], [w + depth**0.5 * identity for w in weights])
    )
    assert weak == pytest.approx(strong, rel=1e-9)
    assert "has the condition number of one with the strong skip $\\beta = \\sqrt L$" in prose("notebooks/residual")

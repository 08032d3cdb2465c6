"""The blocks of a small ResNet20 as matrices."""

import pytest
import torch
from gnbook.random_layers import blocks
from gnbook.shared.local_affine import local_affine
from torch import nn

X, LABELS = blocks.load(6, 8)


def test_the_three_kinds_differ_in_seven_blocks():
    without, usual, zero = (blocks.fresh(kind, 0, 2) for kind in blocks.KINDS)
    assert [len(blocks.residual_blocks(net)) for net in (without, usual, zero)] == [7, 7, 7]
    for layer in blocks.residual_blocks(zero):
        assert torch.equal(layer(z := torch.rand(1, len(layer.branch[-1].weight), 4, 4).double()), z)
    assert all(isinstance(layer.skip, blocks.Nothing) for layer in blocks.residual_blocks(without))
    z = torch.rand(1, 2, 4, 4).double()
    block = blocks.residual_blocks(without)[0]
    assert torch.equal(block(z), block.branch(z).relu())
    for one, other in zip(usual.parameters(), without.parameters(), strict=True):
        assert torch.equal(one, other)


def test_statistics_are_those_of_all_images():
    net = blocks.fresh("usual start", 0, 2)
    fixed = blocks.with_statistics_of(net, X)
    first = next(module for module in fixed.modules() if isinstance(module, nn.BatchNorm2d))
    seen = net.layers[0](X)  # by the first normalisation
    assert torch.allclose(first.running_mean, seen.mean((0, 2, 3)))
    assert torch.allclose(first.running_var, seen.var((0, 2, 3)))
    assert not fixed.training and net.training and next(net.buffers()).eq(0).all()


def test_rows_are_of_the_matrices_of_the_blocks():
    net = blocks.with_statistics_of(blocks.fresh("usual start", 0, 2), X)
    rows = blocks.examine(net, X[:2])
    assert [row["block"] for row in rows] == [block for block in range(1, 8) for _ in range(2)]
    z, block = net.layers[:3](X[:1]).detach(), net.layers[3]
    branch = local_affine(nn.Sequential(block.branch, nn.Flatten()), z[0]).matrix
    kept = (branch + torch.eye(len(branch)))[:, z.flatten() > 0]
    assert rows[0]["norm"] == pytest.approx(torch.linalg.matrix_norm(branch, 2).item())
    assert rows[0]["skip"] == pytest.approx(torch.linalg.cond(kept).item())


def test_ratios_leave_zeros_out():
    assert blocks.ratio(torch.tensor([6.0, 2.0, 1e-12]).double()) == (3.0, 2)

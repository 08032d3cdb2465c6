"""What is unusual about the weights and normalisations of a network is found, and nothing else."""

import pytest
import torch
from torch import nn

import gnlib
from gnlib.diagnosis.remarks import fresh_norms, off_scale
from tests.gnlib.diagnosis.kinds import page


def drawn(*layers):
    torch.manual_seed(0)
    return nn.Sequential(*(make() for make in layers)).double()


def test_weights_off_scale_are_found_and_others_are_not():
    net = drawn(lambda: nn.Linear(16, 8), nn.Tanh, lambda: nn.Linear(8, 8), nn.Tanh, lambda: nn.Linear(8, 2))
    with torch.no_grad():
        net[0].weight.mul_(1e-2)
        net[4].weight.zero_()  # as for a head that is to start at zero
    assert [*off_scale(net)] == ["0", "4"] and off_scale(net)["4"] == 0
    assert off_scale(net)["0"] == pytest.approx(4 * net[0].weight.square().mean().sqrt().item())


def test_attention_has_weights_too():
    torch.manual_seed(0)
    net = nn.TransformerEncoderLayer(16, 2, 32)
    assert not off_scale(net)
    with torch.no_grad():
        for p in net.parameters():
            if p.ndim > 1:
                p.mul_(1e-2)
    assert [*off_scale(net)] == ["self_attn", "self_attn.out_proj", "linear1", "linear2"]


def test_a_normalisation_is_fresh_until_it_has_seen_a_batch():
    net = drawn(lambda: nn.Linear(4, 20), lambda: nn.BatchNorm1d(20), nn.Tanh, lambda: nn.Linear(20, 2))
    x = torch.randn(10, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert "1 batch normalisations are fresh" in page(gnlib.report(net, x, mode="eval")) and len(fresh_norms(net)) == 1
    net.train()(x)
    assert fresh_norms(net) == [] and "fresh" not in page(gnlib.report(net.eval(), x))

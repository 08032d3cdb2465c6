"""Modules whose samples depend on each other: refused, or measured with the whole batch."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from gnlib import condition_number
from gnlib.jacobian.trial import network_of
from tests.gnlib.jacobian.helpers import D, K, N, Net, ViT, assert_refused, assert_right, data, jacobian, made
from tests.gnlib.networks import Whole

COUPLED = "depend on the other samples of the batch"


def batch_norm(self, h):
    return (h - h.mean(0)) / (h.var(0, correction=0) + 1e-5).sqrt()


def limited(self, h, capacity=5):
    """Two experts, each of which takes the first few samples that choose it."""
    choice = (h[:, :1] > 0).long()
    place = functional.one_hot(choice[:, 0], 2).cumsum(0).gather(1, choice) - 1
    experts = torch.stack([h.sin(), h.exp()], 1)
    chosen = experts.gather(1, choice[:, :, None].expand(-1, 1, D))[:, 0]
    return h + torch.where(place < capacity, chosen, 0)


def neighbours(self, h):
    return h + h.roll(1, 0) * (torch.arange(len(h)) == 30)[:, None]


def top(self, h):
    kept = h.flatten().topk(h.numel() // 2).values[-1]
    return h * (h >= kept)


def closed():
    """The mean of the batch, times a parameter that is zero."""

    def forward(self, x):
        return self.linear(x) + self.alpha * self.linear(x).mean(0)

    return Whole(forward, linear=nn.Linear(D, K), alpha=nn.Parameter(torch.zeros(())))


COUPLED_MODULES = {
    "batch norm, zero head": lambda: Net(batch_norm, zero_head=True),
    "limited experts": lambda: Net(limited),
    "late": lambda: Net(lambda self, h: limited(self, h, 18)),
    "one pair of neighbours": lambda: Net(neighbours, zero_head=True),
    "top of the batch": lambda: Net(top, zero_head=True),
    "gate that is closed": closed,
    "only near the given parameters": lambda: Net(
        lambda self, h: h + h.mean(0) * (self.gate.abs() < 1e-5), gate=nn.Parameter(torch.zeros(()))
    ),
    "pairs": lambda: Net(lambda self, h: h + h.unflatten(0, (-1, 2)).flip(1).flatten(0, 1), zero_head=True),
    "attention across": lambda: Net(
        lambda self, h: self.attention(h[:, None], h[:, None], h[:, None])[0][:, 0],
        attention=nn.MultiheadAttention(D, 1),
        zero_head=True,
    ),
    "large and small": lambda: Net(lambda self, h: h + 1e-6 * h.mean(0)),
    "two scales": lambda: nn.Sequential(Net(batch_norm), Whole(lambda self, y: y * torch.tensor([1.0, 1e-3, 1e3]))),
}


@pytest.mark.parametrize("name", COUPLED_MODULES)
def test_coupled_samples_are_refused_or_right(name):
    net = made(COUPLED_MODULES[name])
    for mode in (None, "eval"):
        assert_refused(net, data(), COUPLED if name != "pairs" else f"{COUPLED}|fails on fewer samples", mode=mode)
    assert_right(net, data(), mode="train")


def test_hand_written_batch_norm_under_a_zero_head_has_its_full_rank():
    net = made(COUPLED_MODULES["batch norm, zero head"])
    found = condition_number(net, data(), mode="train")
    values = torch.linalg.svdvals(jacobian(net, data()))
    rank = int((values > 1e-10 * values[0]).sum())
    assert found.rank == rank > K
    assert found.value == pytest.approx((values[0] / values[rank - 1]).item() ** 2, rel=1e-8)


INDEPENDENT_MODULES = {
    "zero head": lambda: Net(zero_head=True),
    "experts without limit": lambda: Net(lambda self, h: limited(self, h, N)),
    "instance norm": lambda: Net(lambda self, h: self.norm(h[:, None])[:, 0], norm=nn.InstanceNorm1d(1)),
    "attention within": lambda: ViT(0.0),
}


@pytest.mark.parametrize("name", INDEPENDENT_MODULES)
def test_independent_samples_stay_independent(name):
    net = made(INDEPENDENT_MODULES[name])
    assert_right(net, data(16))
    assert not network_of(net, data(16)).coupled

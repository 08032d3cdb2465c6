"""Modules whose samples depend on each other, in their outputs or in derivatives alone: refused, or measured with the
whole batch.
"""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional

from gnlib import GaussNewton
from gnlib.jacobian import structure
from gnlib.jacobian.columns import write_columns
from gnlib.jacobian.comparison import Comparison
from gnlib.jacobian.trial import network_of
from tests.gnlib.jacobian.cases import D, K, N, Net, custom, data, made, vision
from tests.gnlib.jacobian.helpers import assert_near, assert_refused, assert_right, jacobian
from tests.gnlib.networks import Whole


def net(between, zero_head=False, **parts):
    """A network with a parameter that is zero."""
    return lambda: Net(between, zero_head=zero_head, gate=nn.Parameter(torch.zeros(())), **parts)


zero_head = partial(net, zero_head=True)


def batch_norm(self, h):
    return (h - h.mean(0)) / (h.var(0, correction=0) + 1e-5).sqrt()


def limited(self, h, capacity=5):
    """Two experts, each of which takes the first few samples that choose it."""
    choice = (h[:, :1] > 0).long()
    place = functional.one_hot(choice[:, 0], 2).cumsum(0).gather(1, choice) - 1
    experts = torch.stack([h.sin(), h.exp()], 1)
    chosen = experts.gather(1, choice[:, :, None].expand(-1, 1, D))[:, 0]
    return h + torch.where(place < capacity, chosen, 0)


def top(self, h):
    kept = h.flatten().topk(h.numel() // 2).values[-1]
    return h * (h >= kept)


ONE_PAIR = (torch.arange(N) == 30)[:, None]
VALUES = {
    "batch norm, zero head": zero_head(batch_norm),
    "limited experts": net(limited),
    "late": net(partial(limited, capacity=18)),
    "one pair of neighbours": zero_head(lambda self, h: h + h.roll(1, 0) * ONE_PAIR[: len(h)]),
    "top of the batch": zero_head(top),
    "gate that is closed": net(lambda self, h: h + self.gate * h.mean(0)),
    "only near the given parameters": net(lambda self, h: h + h.mean(0) * (self.gate.abs() < 1e-5)),
    "pairs": zero_head(lambda self, h: h + h.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)),
    "attention across": zero_head(
        lambda self, h: self.attention(*3 * [h[:, None]])[0][:, 0], attention=nn.MultiheadAttention(D, 1)
    ),
    "large and small": net(lambda self, h: h + 1e-6 * h.mean(0)),
    "two scales": lambda: nn.Sequential(Net(batch_norm), Whole(lambda self, y: y * torch.tensor([1.0, 1e-3, 1e3]))),
}


def stopped(f):
    """Something of the whole batch that has the value zero, and a derivative."""
    return lambda self, h: h + f(self, h) - f(self, h).detach()


STRAIGHT = custom(torch.clone, lambda x, gradient: gradient - gradient.mean(0))  # normalises in the backward pass alone


def small_layer(self, h):
    """A layer whose gradients are small, so that it is compared by its own size."""
    side = self.side(h)
    return h + 1e-6 * (side + 1e-3 * (side - side.detach()).roll(1, 0))


DERIVATIVES = {
    "mean": stopped(lambda self, h: h.mean(0)),
    "neighbour": stopped(lambda self, h: h.roll(1, 0)),
    "one pair": stopped(lambda self, h: torch.cat([h[:-1] * 0, h[-1:] * h[:1]])),
    "gate that is zero": stopped(lambda self, h: self.gate * h.mean(0)),
    "a function of its own": lambda self, h: STRAIGHT(h),
}

# Outputs that differ by about one, far away from zero, and parameters at the border of the domain of a function


def shifted(offset):
    return lambda: nn.Sequential(Net(lambda self, h: h.softmax(0)), Whole(lambda self, y: y + offset))


def border(function, between=lambda h: h):
    return zero_head(lambda self, h: between(h) * function(self.w).sum(), w=nn.Parameter(torch.ones(D)))


OFFSETS = 1.7e9, 3e6, -1e10, 5e7, 2.0**40, torch.tensor([1e9, 0.0, 0.0])
BORDERS = (lambda w: torch.log(w - 0.99), lambda w: torch.sqrt(w - 0.995), lambda w: torch.atanh(w * 0.9999))
BORDERS += (lambda w: (1.001 - w) ** 0.3,)

# Graph networks, of which the nodes are the samples, and others that take all samples together only

EDGES = torch.ones(N, N).tril(1).triu(-2) / 5 + torch.eye(N) / 9


def graph(mix, edges=EDGES):
    def forward(self, x):
        return mix(self.edges, self.two(mix(self.edges, self.one(x)).relu()))

    net = Whole(forward, one=nn.Linear(D, D), two=nn.Linear(D, K))
    net.register_buffer("edges", edges)
    return net


def attended(edges, h):
    """With weights of the edges by the values at their ends, as in a graph attention network."""
    return (h @ h.mT).masked_fill(edges == 0, -torch.inf).softmax(1) @ h


def by_source(edges, h):
    """Sums by the nodes at the ends of a list of edges."""
    source, target = edges.nonzero().mT
    return torch.zeros_like(h).index_add(0, target, h[source])


COUPLED, FAILS = "depend on the other samples of the batch", f"fails on fewer samples, though not on all {N}.*"
CASES = [
    *((f"{COUPLED}|{FAILS}" if name == "pairs" else COUPLED, make) for name, make in VALUES.items()),
    *((f"derivatives of the outputs of a sample {COUPLED}", net(f)) for f in DERIVATIVES.values()),
    *((f"derivatives of the outputs of a sample {COUPLED}", zero_head(f)) for f in DERIVATIVES.values()),
    (f"derivatives of the outputs of a sample {COUPLED}", net(small_layer, side=nn.Linear(D, D))),
    *((COUPLED, shifted(offset)) for offset in OFFSETS),
    *((COUPLED, border(function, partial(batch_norm, None))) for function in BORDERS),
    *((f"{FAILS}the nodes of a graph", partial(graph, mix)) for mix in (torch.matmul, attended, by_source)),
    (rf"{FAILS}A squeeze\(\) drops the axis", lambda: Whole(lambda self, x: self.f(x).squeeze(), f=nn.Linear(D, K))),
]


@pytest.mark.parametrize("message, make", CASES)
def test_coupled_samples_are_refused_or_right(message, make):
    net = made(make)
    for mode in (None, "eval"):
        assert_refused(net, data(), message, mode=mode)
    assert_right(net, data(), mode="train")


INDEPENDENT = [
    zero_head(lambda self, h: h),
    net(partial(limited, capacity=N)),
    net(lambda self, h: self.norm(h[:, None])[:, 0], norm=nn.InstanceNorm1d(1)),
    partial(vision, 0.0),
    *map(border, BORDERS),
]


@pytest.mark.parametrize("make", INDEPENDENT)
def test_independent_samples_stay_independent(make):
    assert_right(made(make), data(16))


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("kind", ["to_sparse", "to_sparse_csr"])
def test_sparse_edges_behind_a_layer_are_those_of_a_dense_graph(kind):
    rows = jacobian(made(lambda: graph(torch.matmul)), data())
    g = GaussNewton(made(lambda: graph(torch.matmul, getattr(EDGES, kind)())), data(), mode="train")
    assert_near(g.gram(), rows @ rows.mT / N)
    assert g.largest_eigenvalue().value == pytest.approx(float(torch.linalg.eigvalsh(g.gram())[-1]))


# Where samples are independent, layers tell it, and no gradient of all weights is taken


def cnn():
    layers = nn.Conv2d(1, 4, 2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(48, K)
    return nn.Sequential(nn.Unflatten(1, (1, 2, 3)), *layers)


def tokens():
    """The six inputs as tokens: all of all samples in rows, then by position first."""

    def between(self, h):
        h = self.first(h.reshape(-1, 1)).view(len(h), D, 4)
        return self.second(h.transpose(0, 1)).transpose(0, 1).tanh().sum(2)

    return Net(between, first=nn.Linear(1, 4), second=nn.Linear(4, 4))


@pytest.mark.parametrize("make", [Net, lambda: Net(zero_head=True), cnn, tokens], ids=["MLP", "zeros", "CNN", "tokens"])
def test_independent_samples_take_no_gradient_of_all_weights(make, monkeypatch):
    def refuse(*_):
        raise AssertionError("a gradient of all weights")

    monkeypatch.setattr(Comparison, "_pull_all", refuse)
    net, x = made(make), data(12)
    network = network_of(net, x)
    assert network.vmapped and not network.coupled and network.structure is not None
    torch.testing.assert_close(network.known, net.double()(x.double()).detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("factor", [1.0, 1 + 1e-6])
def test_columns_of_layers_that_no_backward_pass_has_are_found(factor, monkeypatch):
    network = network_of(made(Net), data(12))

    def scaled(out, *others):
        write_columns(out, *others)
        out.mul_(factor)

    monkeypatch.setattr(structure, "write_columns", scaled)
    assert bool(structure.structure_of(network).uses) == (factor == 1)

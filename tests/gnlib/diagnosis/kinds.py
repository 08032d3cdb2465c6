"""Small networks of many kinds, with data and a loss, and real training of them by torch."""

import math

import torch
from torch import nn
from torch.nn import functional

from tests.gnlib.networks import Whole


def page(found):
    """What is printed, without its line breaks."""
    return " ".join(str(found).split())


def sines():
    return nn.Sequential(nn.Linear(2, 24), Whole(lambda self, h: (30 * h).sin()), nn.Linear(24, 1))


def sets():
    """A function of a set, by a sum over its members."""
    parts = dict(each=nn.Sequential(nn.Linear(3, 16), nn.ReLU()), all=nn.Sequential(nn.ReLU(), nn.Linear(16, 1)))
    return Whole(lambda self, x: self.all(self.each(x).sum(1)), **parts)


def curvature():
    """The second difference of a function, as in a differential equation that is solved by a network."""

    def forward(self, x):
        return torch.cat([(self.u(x + 0.01) - 2 * self.u(x) + self.u(x - 0.01)) / 1e-4, 10 * self.u(0 * x)], 1)

    u = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
    return Whole(forward, u=u)


def mixing():
    """Blocks that mix positions, and a head of zeros."""

    def forward(self, x):
        x = x + self.mix(x.mT).mT
        return self.head(self.norm(x + functional.gelu(self.act(x))).mean(1))

    net = Whole(forward, mix=nn.Linear(6, 6), act=nn.Linear(5, 5), norm=nn.LayerNorm(5), head=nn.Linear(5, 3))
    nn.init.zeros_(net.head.weight), nn.init.zeros_(net.head.bias)
    return net


def adapted():
    """A frozen layer with an adapter of low rank, half of which is zero."""

    def forward(self, x):
        return (self.frozen(x) + x @ self.down @ self.up).sigmoid()[:, :2]

    frozen = nn.Linear(6, 6).requires_grad_(False)
    return Whole(forward, frozen=frozen, down=nn.Parameter(torch.randn(6, 2)), up=nn.Parameter(torch.zeros(2, 6)))


def drawn(name):
    """A network with inputs, targets and a loss, in double precision."""
    torch.manual_seed(1)
    make, shape, loss = CASES[name]
    net, x = make().double(), torch.randn(12, *shape, dtype=torch.float64)
    k = net(x).shape[1]
    y = torch.arange(12) % k if loss == "cross_entropy" else torch.randn(12, k, dtype=torch.float64)
    return net, x, y, loss


CASES = {
    "sines": (sines, (2,), "mse"),
    "sets": (sets, (7, 3), "mse"),
    "a differential equation": (curvature, (1,), "mse"),
    "a head of zeros": (mixing, (6, 5), "cross_entropy"),
    "an adapter": (adapted, (6,), "mse"),
}


def half(f, y):
    return (f - y).square().sum() / (2 * len(f))


LOSSES = {"mse": half, "cross_entropy": functional.cross_entropy}


def loss_at(net, x, y, loss):
    return LOSSES[loss](net(x), y)


def train(net, x, y, loss, optimizer, steps):
    """The losses before each of so many steps of torch, and after the last, until one is not finite."""
    losses = []
    for _ in range(steps + 1):
        value = loss_at(net, x, y, loss)
        losses.append(value.item())
        if not math.isfinite(losses[-1]):
            break
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return losses

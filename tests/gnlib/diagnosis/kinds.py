"""Small networks of many kinds, with data and a loss, and real training of them by torch."""

import math

import torch
from torch import nn
from torch.nn import functional


class Gated(nn.Module):
    """Dilated convolutions with gates, as of a WaveNet."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv1d(1, 8, 1), nn.Conv1d(8, 1, 1)
        self.filters = nn.ModuleList(nn.Conv1d(8, 8, 2, dilation=2**j) for j in range(3))
        self.gates = nn.ModuleList(nn.Conv1d(8, 8, 2, dilation=2**j) for j in range(3))

    def forward(self, x):
        h = self.first(x[:, None])
        for j, (f, g) in enumerate(zip(self.filters, self.gates, strict=True)):
            padded = functional.pad(h, (2**j, 0))
            h = h + f(padded).tanh() * g(padded).sigmoid()
        return self.last(h)[:, 0, -4:]


class Sine(nn.Module):
    def forward(self, x):
        return (30 * x).sin()


class Splines(nn.Module):
    """Sums of bumps on each input, as of a Kolmogorov-Arnold network."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.heights = nn.Parameter(0.1 * torch.randn(outputs, inputs, 7))
        self.slopes = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)
        self.register_buffer("knots", torch.linspace(-2, 2, 7))

    def forward(self, x):
        bumps = (-((x[..., None] - self.knots) / 0.6).square()).exp()
        return torch.einsum("nig,oig->no", bumps, self.heights) + functional.silu(x) @ self.slopes.T


class Sets(nn.Module):
    """A function of a set, by a sum over its members."""

    def __init__(self):
        super().__init__()
        self.each, self.all = nn.Sequential(nn.Linear(3, 16), nn.ReLU()), nn.Sequential(nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x):
        return self.all(self.each(x).sum(1))


class Curvature(nn.Module):
    """The second difference of a function, as in a differential equation that is solved by a network."""

    def __init__(self):
        super().__init__()
        self.u = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x):
        return torch.cat([(self.u(x + 0.01) - 2 * self.u(x) + self.u(x - 0.01)) / 1e-4, 10 * self.u(0 * x)], 1)


class Mixing(nn.Module):
    """Blocks that mix positions, and a head of zeros."""

    def __init__(self):
        super().__init__()
        self.mix, self.act = nn.Linear(6, 6), nn.Linear(5, 5)
        self.norm, self.head = nn.LayerNorm(5), nn.Linear(5, 3)
        nn.init.zeros_(self.head.weight), nn.init.zeros_(self.head.bias)

    def forward(self, x):
        x = x + self.mix(x.mT).mT
        return self.head(self.norm(x + functional.gelu(self.act(x))).mean(1))


class Adapted(nn.Module):
    """A frozen layer with an adapter of low rank, half of which is zero."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.down, self.up = nn.Parameter(torch.randn(6, 2)), nn.Parameter(torch.zeros(2, 6))

    def forward(self, x):
        return (self.frozen(x) + x @ self.down @ self.up).sigmoid()[:, :2]


def drawn(name):
    """A network with inputs, targets and a loss, in double precision."""
    torch.manual_seed(1)
    make, shape, loss = CASES[name]
    net, x = make().double(), torch.randn(12, *shape, dtype=torch.float64)
    k = net(x).shape[1]
    y = torch.arange(12) % k if loss == "cross_entropy" else torch.randn(12, k, dtype=torch.float64)
    return net, x, y, loss


CASES = {
    "gated convolutions": (Gated, (16,), "mse"),
    "sines": (lambda: nn.Sequential(nn.Linear(2, 24), Sine(), nn.Linear(24, 1)), (2,), "mse"),
    "splines": (lambda: nn.Sequential(Splines(3, 6), Splines(6, 1)), (3,), "mse"),
    "sets": (Sets, (7, 3), "mse"),
    "a differential equation": (Curvature, (1,), "mse"),
    "a head of zeros": (Mixing, (6, 5), "cross_entropy"),
    "an adapter": (Adapted, (6,), "mse"),
}


def loss_at(net, x, y, loss):
    f = net(x)
    return functional.cross_entropy(f, y) if loss == "cross_entropy" else (f - y).square().sum() / (2 * len(f))


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

"""Models that are linear in all that is trained, in three parts."""

import torch
from torch import nn

K = 3


class Additive(nn.Module):
    """A table of classes, fixed features, and an offset."""

    def __init__(self):
        super().__init__()
        self.table, self.features, self.offset = nn.Embedding(4, K), nn.Linear(5, K), nn.Parameter(torch.ones(K))

    def forward(self, x):
        return self.table(x[:, 0].abs().mul(2).long() % 4) + self.features(x.sin()) + 2 * self.offset

    def parts(self):
        return [self.table.parameters(), self.features.parameters(), [self.offset]]


class Filtered(nn.Module):
    """A convolution, the mean of which a frozen layer reads, with a skip that is trained."""

    def __init__(self):
        super().__init__()
        self.filters, self.skip = nn.Conv1d(1, K, 2), nn.Linear(5, K, bias=False)

    def forward(self, x):
        return self.filters(x[:, None]).mean(2) + self.skip(x)

    def parts(self):
        return [[self.filters.weight], [self.skip.weight], [self.filters.bias]]


class Polynomial(nn.Module):
    """Coefficients of powers, with their own shape and scale."""

    def __init__(self):
        super().__init__()
        self.powers = nn.ParameterList(torch.randn(5, K) for _ in range(3))

    def forward(self, x):
        return sum((x / 2) ** (j + 1) @ p for j, p in enumerate(self.powers))

    def parts(self):
        return [[p] for p in self.powers]


class Reservoir(nn.Module):
    """A frozen recurrent network with heads on its last state, on its mean, and on the input."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.RNN(1, 6, batch_first=True).requires_grad_(False)
        self.heads = nn.ModuleList([nn.Linear(6, K), nn.Linear(6, K, bias=False), nn.Linear(5, K, bias=False)])

    def forward(self, x):
        states = self.frozen(x[..., None])[0]
        inputs = states[:, -1], states.mean(1), x
        return sum(head(each) for head, each in zip(self.heads, inputs, strict=True))

    def parts(self):
        return [head.parameters() for head in self.heads]


class Kernels(nn.Module):
    """Bumps at fixed places, a scale for each output, and a line."""

    def __init__(self):
        super().__init__()
        self.register_buffer("places", torch.randn(4, 5))
        self.bumps, self.line = nn.Linear(4, K, bias=False), nn.Linear(5, K)

    def forward(self, x):
        return self.bumps((-torch.cdist(x, self.places).square() / 9).exp()) + self.line(x)

    def parts(self):
        return [self.bumps.parameters(), [self.line.weight], [self.line.bias]]


MODULES = [Additive, Filtered, Polynomial, Reservoir, Kernels]

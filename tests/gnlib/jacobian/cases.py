"""Small networks of all kinds, and data for them."""

from functools import partial

import numpy as np
import torch
from torch import nn

from gnlib import GaussNewton
from tests.gnlib.networks import Whole

N, D, K = 40, 6, 3


def gram_matrix(module, x, **options):
    return GaussNewton(module, x, **options).gram()


class Net(Whole):
    """Two linear layers, with whatever is written in the test between them."""

    def __init__(
        self, between=lambda self, h: h, /, *, zero_head=False, inputs=D, width=D, inner=None, outputs=K, **parts
    ):
        def forward(self, x):
            return self.head(self.between(self, self.body(x).tanh()))

        layers = dict(body=nn.Linear(inputs, width), head=nn.Linear(inner or width, outputs))
        super().__init__(forward, **layers, between=between, **parts)
        if zero_head:
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)


def drop_path(self, h, p, rows=True):
    """As in timm: what a block adds is left out, of some samples (rows) or of all, in training."""
    if not self.training or p == 0:
        return h
    kept = h.new_empty(len(h) if rows else 1, *(1 for _ in h.shape[1:])).bernoulli_(1 - p)
    return h * kept.div_(1 - p)


def vision(p):
    """Blocks of a vision transformer, whose tokens are the entries of a sample, under a head of zeros."""

    def between(self, h):
        h = torch.cat([self.token.expand(len(h), -1, -1), h[:, :, None] * self.token], 1)
        for _ in range(2):
            h = h + drop_path(self, self.attention(self.norm(h), h, h, need_weights=False)[0], p)
            h = h + drop_path(self, self.mlp(h).sin(), p)
        return h[:, 0]

    parts = dict(attention=nn.MultiheadAttention(D, 2, batch_first=True), mlp=nn.Linear(D, D), norm=nn.LayerNorm(D))
    return Net(between, zero_head=True, token=nn.Parameter(torch.ones(1, 1, D)), **parts)


class Tokens(nn.Module):
    def __init__(self, dropout=0.0, tie=False):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout, batch_first=True)
        self.head = nn.Linear(8, 11 if tie else 3)
        if tie:
            self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.encoder(self.embedding(x)).mean(1))


def mlp(*norms):
    return nn.Sequential(nn.Linear(5, 7), *norms, nn.Tanh(), nn.Linear(7, 3))


def wide():
    return nn.Sequential(nn.Linear(60, 90), nn.Tanh(), nn.Linear(90, 40, bias=False), nn.Tanh(), nn.Linear(40, 4))


def cnn(norm=None):
    layers = [nn.Conv2d(3, 4, 3, 2, 1), norm, nn.ReLU(), nn.Conv2d(4, 6, 3, groups=2, bias=False), nn.SiLU()]
    return nn.Sequential(*[layer for layer in layers if layer], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))


def warmed(net, shape):
    """Give the running statistics of batch normalisation something to say."""
    with torch.no_grad():
        net.train()(torch.randn(16, *shape) * 2 + 1)
    return net.eval()


def custom(function, backward):
    """A function with a backward pass of its own, of the input and of the gradient by the output."""

    class Custom(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return function(x)

        @staticmethod
        def backward(ctx, gradient):
            return backward(*ctx.saved_tensors, gradient)

    return Custom.apply


def by_numpy(function, derivative, dtype):
    """A function of NumPy in some precision, with its derivative."""

    def of(f, x):
        return torch.from_numpy(f(x.detach().numpy().astype(dtype)).astype(np.float64))

    return custom(partial(of, function), lambda x, gradient: gradient * of(derivative, x))


def embedded(**options):
    return nn.Sequential(nn.Embedding(11, D, **options), nn.Flatten(), nn.Linear(4 * D, K))


def made(make, seed=0):
    torch.manual_seed(seed)
    return make()


def data(n=N, seed=1):
    return torch.randn(n, D, generator=torch.Generator().manual_seed(seed))


def normal(*shape):
    return lambda n: torch.randn(n, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def integers(*shape, high=11):
    return lambda n: torch.randint(0, high, (n, *shape), generator=torch.Generator().manual_seed(5))


def vector(*shape):
    return lambda n: torch.randn(n, *shape)


tokens = integers(4)

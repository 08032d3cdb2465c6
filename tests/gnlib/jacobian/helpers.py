"""Modules that look harmless and are not are refused with a sentence, or measured right.

The oracle is automatic differentiation of the whole batch in double precision, of the function that is meant, written
out where that is not what the module says.
"""

import copy
import pickle
import random

import numpy as np
import pytest
import torch
from torch import nn

from tests.gnlib.derivatives import rows_of
from tests.gnlib.jacobian.cases import gram_matrix

N, D, K = 40, 6, 3
HELD = torch.Generator().manual_seed(3)
IMAGES = torch.randint(0, 255, (4, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(6))


class Net(nn.Module):
    """Two linear layers, with whatever is written in the test between them."""

    def __init__(self, between=lambda self, h: h, *, zero_head=False, **parts):
        super().__init__()
        self.body, self.head, self.between = nn.Linear(D, D), nn.Linear(D, K), between
        for name, part in parts.items():
            setattr(self, name, part)
        if zero_head:
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)

    def forward(self, x):
        return self.head(self.between(self, self.body(x).tanh()))


class DropPath(nn.Module):
    """As in timm."""

    def __init__(self, drop_prob):
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x):
        if self.drop_prob == 0 or not self.training:
            return x
        random_tensor = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(1 - self.drop_prob)
        return x * random_tensor.div_(1 - self.drop_prob)


class Block(nn.Module):
    def __init__(self, drop_path):
        super().__init__()
        self.norm1, self.norm2, self.drop_path = nn.LayerNorm(D), nn.LayerNorm(D), DropPath(drop_path)
        self.attention = nn.MultiheadAttention(D, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(D, 8), nn.GELU(), nn.Linear(8, D))

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.drop_path(self.attention(h, h, h, need_weights=False)[0])
        return x + self.drop_path(self.mlp(self.norm2(x)))


class ViT(nn.Module):
    def __init__(self, drop_path):
        super().__init__()
        self.embed, self.head = nn.Linear(2, D), nn.Linear(D, K)
        self.token = nn.Parameter(torch.zeros(1, 1, D))
        self.blocks = nn.Sequential(Block(drop_path), Block(drop_path))
        nn.init.zeros_(self.head.weight)

    def forward(self, x):
        x = self.embed(x.unflatten(1, (3, 2)))
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        return self.head(self.blocks(x)[:, 0])


def tokens(n=8):
    return torch.randint(0, 11, (n, 4), generator=torch.Generator().manual_seed(5))


def embedded(**options):
    return nn.Sequential(nn.Embedding(11, D, **options), nn.Flatten(), nn.Linear(4 * D, K))


def data(n=N, seed=1):
    return torch.randn(n, D, generator=torch.Generator().manual_seed(seed))


def made(make, seed=0):
    torch.manual_seed(seed)
    return make()


def jacobian(net, x):
    """The whole batch at once, one backward pass a row, in double precision."""
    return rows_of(copy.deepcopy(net).double(), x)


def assert_right(net, x, meant=None, **arguments):
    rows = jacobian(net if meant is None else meant, x)
    expected = rows @ rows.mT / len(x)
    state, before = copy.deepcopy(net.state_dict()), generators()
    gram = gram_matrix(net, x, **arguments)
    torch.testing.assert_close(gram, expected, rtol=0, atol=1e-11 * expected.abs().max().item())
    assert generators() == before
    for key, value in net.state_dict().items():
        assert torch.equal(value, state[key])


def generators():
    """The states of all generators of random numbers that a network may find."""
    legacy = pickle.dumps(np.random.get_state())  # noqa: NPY002
    return torch.get_rng_state().tolist(), HELD.get_state().tolist(), random.getstate(), legacy


def assert_refused(net, x, message, error=ValueError, **arguments):
    state, flags = copy.deepcopy(net.state_dict()), [m.training for m in net.modules()]
    before = generators()
    with pytest.raises(error, match=message) as refused:
        gram_matrix(net, x, **arguments)
    assert generators() == before
    assert [m.training for m in net.modules()] == flags
    for key, value in net.state_dict().items():
        assert torch.equal(value, state[key])
    return str(refused.value)

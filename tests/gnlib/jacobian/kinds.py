"""What modules of many kinds are made of: a frame to put layers into, data, and the comparison with autograd."""

import copy
import re

import pytest
import torch
from torch import nn

from gnlib.jacobian.gram import blocks_of, gram_of
from gnlib.jacobian.trial import network_of
from tests.gnlib.derivatives import rows_of
from tests.gnlib.jacobian.cases import assert_gram, gram_matrix
from tests.gnlib.jacobian.helpers import made
from tests.gnlib.networks import Whole

D, M, K, T, N = 420, 24, 3, 4, 5
CUT = 150_000  # entries of a Jacobian that the least memory that is accepted cuts into pieces


class Frame(Whole):
    """Two linear layers, with what is tried between them; `head` takes the outputs of one sample in a row."""

    def __init__(self, between, /, inner=M, **parts):
        def forward(self, x):
            return self.head(between(self, self.body(x).tanh()))

        super().__init__(forward, body=nn.Linear(D, M), **parts, head=nn.Linear(inner, K))


def linear(between, **parts):
    """A linear layer between two others, beside parts that are made with it."""
    return lambda: Frame(between, fc=nn.Linear(M, M), **{name: part() for name, part in parts.items()})


def weight(between, *shape):
    return lambda: Frame(between, w=parameter(*shape))


def whole(forward, **parts):
    """A network that is given its parts when it is made."""
    return lambda: Whole(forward, **{name: part() for name, part in parts.items()})


def images(*layers, shape=(3, 6, 6)):
    """Layers, then a network with one hidden layer on all that they return."""
    body = nn.Sequential(*layers, nn.Tanh(), nn.Flatten())
    with torch.no_grad():
        size = copy.deepcopy(body).eval()(torch.zeros(2, *shape)).shape[1]
    hidden = 10_000 // size
    return nn.Sequential(*body, nn.Linear(size, hidden), nn.Tanh(), nn.Linear(hidden, K))


def parameter(*shape, scale=0.3):
    return nn.Parameter(scale * torch.randn(shape))


def normal(*shape):
    return lambda n: torch.randn(n, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def integers(*shape, high=11):
    return lambda n: torch.randint(0, high, (n, *shape), generator=torch.Generator().manual_seed(5))


ROWS, SEQUENCES, TOKENS, IMAGES = normal(D), normal(T, D), integers(T), normal(3, 6, 6)


def last_first(net, rows):
    """The columns of a Jacobian in the order in which blocks are handed out: last parameters first."""
    sizes = [p.numel() for p in net.parameters() if p.requires_grad]
    return torch.cat(rows.split(sizes, 1)[::-1], 1)


def least(function, *networks):
    """The smallest memory that is accepted, as the error says."""
    with pytest.raises(ValueError, match=r"memory is 1e-09 GiB but \S+ are needed") as refused:
        function(networks, 1e-9)
    return float(re.search(r"but (\S+) are needed", str(refused.value))[1])


def assert_as_autograd(make, x, mode=None):
    """Compare the Gram matrix and the Jacobian, in enough memory and in the least, with autograd's of a twin."""
    net, twin = made(make).double(), made(make).double()
    rows = last_first(net, rows_of(twin, x))
    assert rows.any()
    assert_gram(gram_matrix(net, x, mode=mode), rows, len(x), 1e-12)
    network = network_of(net, x, mode=mode)
    assert_gram(gram_of([network], least(gram_of, network)), rows, len(x), 1e-12)
    blocks = list(blocks_of([network], least(blocks_of, network)))
    assert len(blocks) > 1 or rows.numel() < CUT
    torch.testing.assert_close(torch.cat(blocks, 1), rows, rtol=0, atol=1e-12 * rows.abs().max().item())

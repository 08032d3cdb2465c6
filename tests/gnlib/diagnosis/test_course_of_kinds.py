"""Five kinds of networks: the bounds on 1,000 steps after at most 60 products, and the linear model between them."""

import pytest
import torch
from torch import nn

from gnlib import GaussNewton


class Residual(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width)
        self.branches = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()) for _ in range(3)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        for branch in self.branches:
            x = x + branch(x)
        return self.head(x.mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed, self.place = nn.Linear(48, width), nn.Parameter(0.1 * torch.randn(1, 16, width))
        layer = dict(d_model=width, nhead=2, dim_feedforward=32, dropout=0.0, batch_first=True, norm_first=True)
        self.body, self.head = nn.TransformerEncoderLayer(**layer), nn.Linear(width, 10)

    def forward(self, x):
        patches = x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(len(x), 16, 48)
        return self.head(self.body(self.embed(patches) + self.place).mean(1))


class Language(nn.Module):
    def __init__(self, vocabulary=12, width=16):
        super().__init__()
        self.embed, self.place = nn.Embedding(vocabulary, width), nn.Parameter(0.1 * torch.randn(1, 8, width))
        layer = dict(d_model=width, nhead=2, dim_feedforward=32, dropout=0.0, batch_first=True, norm_first=True)
        self.body, self.head = nn.TransformerEncoderLayer(**layer), nn.Linear(width, vocabulary)

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(8).to(self.place)
        return self.head(self.body(self.embed(ids) + self.place, src_mask=mask)).flatten(1)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.LSTM(6, 12, batch_first=True), nn.Linear(12, 10)

    def forward(self, x):
        return self.head(self.layer(x)[0][:, -1])


def images(n):
    return torch.randn(n, 3, 16, 16)


def convolution():
    first = nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 12, 3, stride=2), nn.ReLU()
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(108, 10))


KINDS = {
    "CNN": (convolution, images, 60, 10),
    "ResNet": (Residual, images, 40, 10),
    "ViT": (Attention, images, 40, 10),
    "GPT": (Language, lambda n: torch.randint(0, 12, (n, 8)), 10, 96),
    "LSTM": (Recurrent, lambda n: torch.randn(n, 7, 6), 60, 10),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind == "CNN" else pytest.mark.nightly) for kind in KINDS]
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_bounds_are_narrow_after_sixty_products_and_hold(kind, dtype):
    made, data, n, k = KINDS[kind]
    torch.manual_seed(0)
    module, x = made().double().eval(), data(n)
    x, y = x.double() if x.is_floating_point() else x, torch.randn(n, k).double()
    by = GaussNewton(module, x, y, dtype=dtype)
    found = by.loss_bounds(steps=1000, products=60)
    values, vectors = torch.linalg.eigh(GaussNewton(module, x, y).gram())
    with torch.no_grad():
        r = vectors.mT @ (module(x) - y).flatten()
    t = torch.arange(1001, dtype=torch.float64)[:, None]
    exact = (r.square() * (1 - found.rate * values).abs() ** (2 * t)).sum(1) / (2 * n)
    slack = 1e-9 if dtype == torch.float64 else 1e-4
    assert (found.lower <= exact * (1 + slack)).all() and (exact <= found.upper * (1 + slack)).all()
    assert found.within <= 1.05 or float(found.upper[-1] - found.lower[-1]) <= 1e-3 * float(found.lower[0])
    assert found.products <= 60

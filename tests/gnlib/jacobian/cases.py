"""Networks of all kinds with data for them, and their Gram matrices by plain autograd."""

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, prune

from gnlib import GaussNewton
from tests.gnlib.derivatives import gradients
from tests.gnlib.networks import Whole


def gram_matrix(module, x, **options):
    return GaussNewton(module, x, **options).gram()


def jacobian_blocks(module, x, **options):
    return GaussNewton(module, x, **options).jacobian()


class Lambda(Whole):
    """A network whose forward pass is written in the test, with a linear layer and whatever else it is given."""

    def __init__(self, forward, **parts):
        super().__init__(forward, linear=nn.Linear(5, 3), **parts)


class Residual(nn.Module):
    def __init__(self, stride):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, 1, 1, groups=2)
        self.skip = nn.Conv2d(3, 4, 1, stride)

    def forward(self, x):
        return functional.relu(self.second(functional.gelu(self.norm(self.first(x)))) + self.skip(x))


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


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cells = kind(4, 5, batch_first=True)
        self.head = nn.Linear(5, 2)

    def forward(self, x):
        return self.head(self.cells(x)[0][:, -1])


def mlp(*norms):
    return nn.Sequential(nn.Linear(5, 7), *norms, nn.Tanh(), nn.Linear(7, 3))


def cnn(norm=None):
    layers = [nn.Conv2d(3, 4, 3, 2, 1), norm, nn.ReLU(), nn.Conv2d(4, 6, 3, groups=2, bias=False), nn.SiLU()]
    return nn.Sequential(*[layer for layer in layers if layer], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))


def warmed(net, shape):
    """Give the running statistics of batch normalisation something to say."""
    with torch.no_grad():
        net.train()(torch.randn(16, *shape) * 2 + 1)
    return net.eval()


def pruned():
    net = mlp()
    prune.l1_unstructured(net[0], "weight", 0.6)
    prune.random_structured(net[2], "weight", 1, dim=0)
    return net


def frozen():
    net = mlp()
    net[0].bias.requires_grad_(False)
    net[2].weight.requires_grad_(False)
    return net


def tied():
    shared = nn.Linear(5, 5)
    return nn.Sequential(shared, nn.Tanh(), shared, nn.Tanh(), nn.Linear(5, 2))


def attention():
    return Lambda(
        lambda self, x: self.linear(self.attention(x, x, x)[0].mean(1)),
        attention=nn.MultiheadAttention(5, 1, dropout=0.3, batch_first=True),
    ).eval()


def vector(*shape):
    return lambda n: torch.randn(n, *shape)


def tokens(n):
    return torch.randint(0, 11, (n, 4))


IMAGE = (3, 6, 6)
INDEPENDENT = {
    "mlp": (mlp, vector(5)),
    "one output": (lambda: nn.Sequential(nn.Linear(5, 4), nn.Sigmoid(), nn.Linear(4, 1)), vector(5)),
    "cnn": (cnn, vector(*IMAGE)),
    "layer norm": (lambda: mlp(nn.LayerNorm(7)), vector(5)),
    "group norm": (lambda: cnn(nn.GroupNorm(2, 4)), vector(*IMAGE)),
    "batch norm 1d": (lambda: warmed(mlp(nn.BatchNorm1d(7)), (5,)), vector(5)),
    "batch norm 2d": (lambda: warmed(cnn(nn.BatchNorm2d(4, affine=False)), IMAGE), vector(*IMAGE)),
    "residual": (
        lambda: warmed(nn.Sequential(Residual(2), nn.Flatten(), nn.Linear(36, 3)), IMAGE),
        vector(*IMAGE),
    ),
    "attention": (attention, vector(4, 5)),
    "transformer": (Tokens, tokens),
    "transformer, dropout": (lambda: Tokens(0.5).eval(), tokens),
    "transformer, tied": (lambda: Tokens(tie=True), tokens),
    "lstm": (lambda: Recurrent(nn.LSTM), vector(3, 4)),
    "gru": (lambda: Recurrent(nn.GRU), vector(3, 4)),
    "tied": (tied, vector(5)),
    "pruned": (pruned, vector(5)),
    "frozen": (frozen, vector(5)),
    "weight norm": (lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(5, 4)), nn.Tanh()), vector(5)),
    "spectral norm": (
        lambda: nn.Sequential(parametrizations.spectral_norm(nn.Linear(5, 4)), nn.Tanh()).eval(),
        vector(5),
    ),
    "unused layer": (lambda: Lambda(lambda self, x: self.linear(x), idle=nn.Linear(2, 2)), vector(5)),
    "dead units": (lambda: Lambda(lambda self, x: self.linear(x).clamp_max(-9).relu() + self.linear(x)), vector(5)),
    "in place": (lambda: Lambda(lambda self, x: self.linear(torch.zeros(len(x), 5).add_(x))), vector(5)),
    "control flow": (
        lambda: Lambda(lambda self, x: torch.stack([self.linear(r) if r[0] > 0 else self.linear(r).exp() for r in x])),
        vector(5),
    ),
    "constants": (
        lambda: Lambda(lambda self, x: self.linear(x) @ torch.ones(3, 2) + torch.linspace(0, 1, 2)),
        vector(5),
    ),
}
COUPLED = {
    "batch norm 1d": (lambda: mlp(nn.BatchNorm1d(7)), vector(5)),
    "batch norm 1d, not affine": (lambda: mlp(nn.BatchNorm1d(7, affine=False)), vector(5)),
    "batch norm first": (lambda: nn.Sequential(nn.BatchNorm1d(5), *mlp()), vector(5)),
    "batch norm last": (lambda: nn.Sequential(*mlp(), nn.BatchNorm1d(3)), vector(5)),
    "batch norm 2d": (lambda: cnn(nn.BatchNorm2d(4)), vector(*IMAGE)),
    "batch norm, no statistics": (lambda: mlp(nn.BatchNorm1d(7, track_running_stats=False)), vector(5)),
    "residual": (lambda: nn.Sequential(Residual(1), nn.Flatten(), nn.Linear(144, 2)), vector(*IMAGE)),
    "mean of the batch": (lambda: Lambda(lambda self, x: self.linear(x - x.mean(0)).tanh()), vector(5)),
}


def wide():
    return nn.Sequential(nn.Linear(60, 90), nn.Tanh(), nn.Linear(90, 40, bias=False), nn.Tanh(), nn.Linear(40, 4))


def draw(make, data, n, seed=0):
    torch.manual_seed(seed)
    return make(), data(n)


def plain_jacobian(make, data, n, mode=None, dtype=torch.float32):
    """Every row by a backward pass of its own, through the whole batch; last parameters first."""
    net, x = draw(make, data, n)
    net.to(dtype).double()
    if mode is not None:
        net.train(mode == "train")
    torch.set_default_dtype(torch.float64)
    y = net(x.to(dtype).double() if x.is_floating_point() else x)
    torch.set_default_dtype(torch.float32)
    return gradients(y, [p for p in net.parameters() if p.requires_grad][::-1]), n


def assert_gram(gram, jacobian, n, tolerance=1e-10):
    expected = jacobian @ jacobian.mT / n
    assert gram.dtype == torch.float64
    assert torch.equal(gram, gram.mT)
    torch.testing.assert_close(gram, expected, rtol=0, atol=tolerance * expected.abs().max().item())

"""Layers of all kinds, each used once and as it is meant to be."""

import torch
from torch import nn

from tests.gnlib.jacobian.cases import warmed
from tests.gnlib.jacobian.kinds import (
    IMAGES,
    ROWS,
    SEQUENCES,
    TOKENS,
    D,
    Frame,
    K,
    M,
    T,
    Whole,
    images,
    integers,
    normal,
    parameter,
)

IMAGE, SIGNAL, VOLUME = (3, 6, 6), (6, 16), (2, 4, 4, 5)
SIGNALS, VOLUMES = normal(*SIGNAL), normal(*VOLUME)


def layer(make, **options):
    """A layer of M features between two others."""
    return lambda: Frame(lambda self, h: self.layer(h).sin(), layer=make(), **options)


def over_tokens(make):
    """A layer over tokens, which are averaged."""
    return lambda: Frame(lambda self, h: self.layer(h).tanh().mean(1), layer=make())


def conv(make, shape=IMAGE):
    return lambda: images(make(), shape=shape)


def norm_of(make, shape=IMAGE):
    return lambda: images(nn.Conv2d(3, 4, 3, padding=1), make(), shape=shape)


def self_attention(**options):
    def between(self, h):
        return self.attention(h, h, h, need_weights=False)[0].mean(1)

    return lambda: Frame(between, attention=nn.MultiheadAttention(M, 4, batch_first=True, **options))


def cross_attention(self, h):
    memory = self.memory(h[:, :3])
    return self.attention(h, memory, memory.sin()[..., :20])[0].mean(1)


def encoder(**options):
    layer = nn.TransformerEncoderLayer(M, 2, 20, 0.0, batch_first=True, **options)
    return Frame(lambda self, h: self.layer(h).mean(1), layer=layer)


def transformer():
    model = nn.Transformer(M, 2, 1, 1, 20, 0.0, batch_first=True)
    return Frame(lambda self, h: self.model(h[:, 1:], h[:, :2]).mean(1), model=model)


def embedded(size=11, take=lambda self, h: h.mean(1), **options):
    embedding = nn.Embedding(size, M, **options)
    return Whole(
        lambda self, x: self.head(take(self, self.embedding(x)).tanh()), embedding=embedding, head=nn.Linear(M, K)
    )


def with_positions():
    def forward(self, x):
        h = self.embedding(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        return self.head(self.mix(h).sin().mean(1))

    return Whole(
        forward, embedding=nn.Embedding(11, M), positions=nn.Embedding(T, M), mix=nn.Linear(M, M), head=nn.Linear(M, K)
    )


def weighted_bag():
    bag = nn.EmbeddingBag(120, M, mode="sum")

    def forward(self, x):
        return self.head(self.bag(x, per_sample_weights=self.importance[x]).tanh())

    return Whole(forward, bag=bag, importance=parameter(120), head=nn.Linear(M, K))


def recurrent(kind, **options):
    size = options.get("proj_size", 8 * (2 if options.get("bidirectional") else 1))
    cells = dict(batch_first=True, **options)
    return lambda: Frame(lambda self, h: self.cells(h)[0][:, -1], cells=kind(M, 8, **cells), inner=size)


def cell(kind):
    def between(self, h):
        carried = h.new_zeros(len(h), M)
        for step in h.unbind(1):
            carried = self.cell(step, carried)
        return carried

    return lambda: Frame(between, cell=kind(M, M))


def cnn():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 24, 3, padding=1, bias=False),
        nn.GroupNorm(4, 24), nn.SiLU(), nn.Conv2d(24, 30, 3), nn.GELU(), nn.Flatten(), nn.Linear(30, K),
    )  # fmt: skip


def eval_norm(kind, **options):
    def make():
        torch.manual_seed(3)
        return warmed(images(nn.Conv2d(3, 4, 3, padding=1), kind(4, **options)), IMAGE)

    return make


LAYERS = {
    "linear": (lambda: nn.Linear(D, K), ROWS),
    "mlp": (lambda: nn.Sequential(nn.Linear(D, M), nn.ReLU(), nn.Linear(M, 50), nn.GELU(), nn.Linear(50, K)), ROWS),
    "tokens": (over_tokens(lambda: nn.Linear(M, M)), SEQUENCES),
    "tokens, more than weights": (
        lambda: Whole(
            lambda self, x: self.head(self.small(x).tanh().mean(1)), small=nn.Linear(3, 2), head=nn.Linear(2, K)
        ),
        normal(60, 3),
    ),
    "cnn": (cnn, normal(3, 6, 6)),
    "conv 1d, stride, dilation": (conv(lambda: nn.Conv1d(6, 12, 3, 2, 2, 3, groups=2), SIGNAL), SIGNALS),
    "conv 3d, padding": (conv(lambda: nn.Conv3d(2, 4, 3, (1, 2, 1), (0, 1, 2), groups=2), VOLUME), VOLUMES),
    "conv 2d, stride that leaves a border": (conv(lambda: nn.Conv2d(3, 20, 3, 2)), IMAGES),
    "conv 2d, two dilations": (conv(lambda: nn.Conv2d(3, 20, (3, 2), dilation=(1, 3), padding=1)), IMAGES),
    "conv 2d, same, even kernel": (conv(lambda: nn.Conv2d(3, 4, (2, 4), padding="same")), IMAGES),
    "conv 2d, same, dilated": (conv(lambda: nn.Conv2d(3, 4, 3, padding="same", dilation=(1, 2))), IMAGES),
    "conv 2d, valid": (conv(lambda: nn.Conv2d(3, 8, 3, padding="valid")), IMAGES),
    "conv 2d, circular": (conv(lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular")), IMAGES),
    "conv 2d, grouped": (
        lambda: images(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 6, 3, padding=1, groups=2)),
        IMAGES,
    ),
    "conv 2d, transposed, grouped": (conv(lambda: nn.ConvTranspose2d(3, 6, 2, groups=3, dilation=2)), IMAGES),
    "layer norm": (layer(lambda: nn.LayerNorm(M)), ROWS),
    "root mean square norm, over two axes": (over_tokens(lambda: nn.RMSNorm((T, M))), SEQUENCES),
    "group norm": (norm_of(lambda: nn.GroupNorm(2, 4)), IMAGES),
    "instance norm": (norm_of(lambda: nn.InstanceNorm2d(4, affine=True)), IMAGES),
    "batch norm, running": (eval_norm(nn.BatchNorm2d), IMAGES),
    "parametric relu": (layer(lambda: nn.PReLU(M)), ROWS),
    "attention": (self_attention(), SEQUENCES),
    "attention, bias of keys": (self_attention(add_bias_kv=True), SEQUENCES),
    "attention, cross": (
        lambda: Frame(
            cross_attention,
            memory=nn.Linear(M, 30),
            attention=nn.MultiheadAttention(M, 4, kdim=30, vdim=20, batch_first=True),
        ),
        SEQUENCES,
    ),
    "transformer": (encoder, SEQUENCES),
    "transformer, whole": (transformer, SEQUENCES),
    "embedding": (lambda: embedded(120), integers(T, high=120)),
    "embedding, negative padding": (lambda: embedded(11, padding_idx=-2), TOKENS),
    "embedding, one token": (lambda: embedded(11, lambda self, h: h), integers()),
    "embedding, positions": (with_positions, TOKENS),
    "embedding, bag, weighted": (weighted_bag, integers(T, high=120)),
    "lstm, both ways, projected": (recurrent(nn.LSTM, num_layers=2, proj_size=7), SEQUENCES),
    "gru": (recurrent(nn.GRU, bidirectional=True), SEQUENCES),
    "gru, cell": (cell(nn.GRUCell), SEQUENCES),
    "bilinear": (
        lambda: Frame(lambda self, h: self.layer(h[:, :16], h[:, 16:].sin()), layer=nn.Bilinear(16, 8, 20), inner=20),
        ROWS,
    ),
}

COUPLED = {
    "batch norm": (norm_of(lambda: nn.BatchNorm2d(4)), IMAGES),
    "batch norm, of signals": (
        lambda: images(nn.Conv1d(6, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), nn.Conv1d(8, 6, 3), shape=SIGNAL),
        SIGNALS,
    ),
    "batch norm, twice": (
        lambda: images(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.SiLU()),
        IMAGES,
    ),
    "embedded tokens, normalised": (
        lambda: Whole(
            lambda self, x: self.head(self.norm(self.embedding(x).mean(1)).tanh()),
            embedding=nn.Embedding(120, M),
            norm=nn.BatchNorm1d(M),
            head=nn.Linear(M, K),
        ),
        integers(T, high=120),
    ),
}

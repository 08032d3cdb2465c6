"""Modules of all kinds by a name, each as a function that makes a network, and one that makes data for it.

Layers as they are meant to be used, and forward passes that do more than call one after another: weights that are
shared, masked, used elsewhere or hidden from whoever watches layers; axes, places, branches and threads.
"""

import copy
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint

from tests.gnlib.jacobian.cases import K, Net, Tokens, cnn, integers, mlp, normal, tokens, warmed, wide
from tests.gnlib.networks import Whole

D, M, T, N = 420, 24, 4, 5
IMAGE, SIGNAL, VOLUME = (3, 6, 6), (6, 16), (2, 4, 4, 5)
ROWS, SEQUENCES, IMAGES, SMALL = normal(D), normal(T, D), normal(*IMAGE), normal(5)
Frame, LINEAR, BODY, HEAD = partial(Net, inputs=D, width=M), *(partial(nn.Linear, *s) for s in ((M, M), (D, M), (M, K)))


def linear(between, **parts):
    """A linear layer between two others, beside parts that are made with it."""
    return lambda: Frame(between, fc=nn.Linear(M, M), **{name: part() for name, part in parts.items()})


def whole(forward, **parts):
    """A network that is given its parts when it is made."""
    return lambda: Whole(forward, **{name: part() for name, part in parts.items()})


def w(*shape):
    return lambda: nn.Parameter(0.3 * torch.randn(shape))


def layer(make, after=torch.sin):
    """A layer of M features between two others."""
    return lambda: Frame(lambda self, h: after(self.layer(h)), layer=make())


def over_tokens(make):
    """A layer over tokens, which are averaged."""
    return layer(make, lambda h: h.tanh().mean(1))


def images(*layers, shape=IMAGE):
    """Layers, then a network with one hidden layer on all that they return."""
    body = nn.Sequential(*layers, nn.Tanh(), nn.Flatten())
    with torch.no_grad():
        size = copy.deepcopy(body).eval()(torch.zeros(2, *shape)).shape[1]
    hidden = 10_000 // size
    return nn.Sequential(*body, nn.Linear(size, hidden), nn.Tanh(), nn.Linear(hidden, K))


def conv(make, shape=IMAGE):
    return lambda: images(make(), shape=shape)


def norm_of(make):
    return lambda: images(nn.Conv2d(3, 4, 3, padding=1), make())


def dying(*layers):
    """Layers of which the first has a unit that no output reacts to."""
    with torch.no_grad():
        layers[0].bias[1] = -100.0
    return nn.Sequential(*layers)


def head(features):
    return nn.ReLU(), nn.Flatten(), nn.Linear(features, 3)


def tied():
    shared = nn.Linear(5, 5)
    return nn.Sequential(shared, nn.Tanh(), shared, nn.Tanh(), nn.Linear(5, 2))


def frozen():
    net = mlp(nn.LayerNorm(7))
    for p in (net[0].bias, net[1].weight, net[3].weight):
        p.requires_grad_(False)
    return net


def pruned():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Conv2d(4, 4, 3, groups=2), nn.Flatten(), nn.Linear(16, K))
    prune.ln_structured(net[0], "weight", 0.5, 2, 0)
    prune.l1_unstructured(net[2], "weight", 0.7)
    prune.random_structured(net[4], "weight", 1, dim=0)
    return net


def few(*results):
    """A few outputs that depend on all that is returned."""
    y = torch.cat([result.flatten(1) for result in results], 1)
    return y @ torch.arange(3 * y.shape[1], dtype=y.dtype).sin().view(-1, 3)


def recurrent(kind, **options):
    """All outputs and last states of a layer, from states that depend on the data."""

    def forward(self, x):
        cells = self.cells
        sizes = [cells.proj_size or 5] + [5] * (kind is nn.LSTM)
        passes = cells.num_layers * (1 + cells.bidirectional)
        start = [torch.stack([(1 + i) * x[:, 0, :1].expand(-1, size) for i in range(passes)]) for size in sizes]
        y, ends = cells(x if cells.batch_first else x.transpose(0, 1), start[0] if len(start) == 1 else tuple(start))
        y = y if cells.batch_first else y.transpose(0, 1)
        return few(y, *(end.transpose(0, 1) for end in ([ends] if isinstance(ends, torch.Tensor) else ends)))

    return lambda: Whole(forward, cells=kind(2, 5, **dict(batch_first=True) | options)), normal(3, 2)


def cell(kind, **options):
    def forward(self, x):
        h = x.new_ones(len(x), 5)
        state = (h, h) if kind is nn.LSTMCell else h
        for step in x.unbind(1):
            state = self.cell(step, state)
        return few(*state) if kind is nn.LSTMCell else state

    return lambda: Whole(forward, cell=kind(2, 5, **options)), normal(3, 2)


RECURRENT = {
    "lstm": recurrent(nn.LSTM),
    "lstm, projected, both ways": recurrent(nn.LSTM, num_layers=2, bidirectional=True, proj_size=3),
    "lstm, projected, without bias, time first": recurrent(nn.LSTM, proj_size=3, bias=False, batch_first=False),
    "gru, layers": recurrent(nn.GRU, num_layers=2),
    "gru, both ways, without bias": recurrent(nn.GRU, bidirectional=True, bias=False),
    "recurrent": recurrent(nn.RNN, num_layers=2, bidirectional=True),
    "recurrent, rectified": recurrent(nn.RNN, nonlinearity="relu"),
    "lstm, cell": cell(nn.LSTMCell),
    "gru, cell": cell(nn.GRUCell),
    "recurrent, cell": cell(nn.RNNCell),
    "recurrent, rectified, cell": cell(nn.RNNCell, nonlinearity="relu", bias=False),
}


LAYERS = {
    "mlp": (mlp, SMALL),
    "mlp, wide": (wide, normal(60)),
    "mlp, one output": (lambda: nn.Sequential(nn.Linear(5, 4), nn.Sigmoid(), nn.Linear(4, 1)), SMALL),
    "mlp, dead unit": (lambda: dying(nn.Linear(60, 90), nn.ReLU(), nn.Linear(90, 4)), normal(60)),
    "tokens": (over_tokens(LINEAR), SEQUENCES),
    "tokens, more than weights": (lambda: Whole(lambda self, x: self.few(x).mean(1), few=mlp()), normal(60, 5)),
    "cnn": (lambda: cnn(nn.GroupNorm(2, 4)), IMAGES),
    "conv 1d, stride, dilation": (conv(lambda: nn.Conv1d(6, 12, 3, 2, 2, 3, groups=2), SIGNAL), normal(*SIGNAL)),
    "conv 2d, many positions": (lambda: dying(nn.Conv2d(3, 4, 3), *head(64)), IMAGES),
    "conv 2d, few positions": (lambda: dying(nn.Conv2d(3, 64, 5), *head(256)), IMAGES),
    "conv 2d, few positions, groups": (lambda: dying(nn.Conv2d(4, 64, 5, groups=2), *head(256)), normal(4, 6, 6)),
    "conv 2d, stride that leaves a border": (conv(lambda: nn.Conv2d(3, 20, 3, 2)), IMAGES),
    "conv 2d, two dilations": (conv(lambda: nn.Conv2d(3, 20, (3, 2), dilation=(1, 3), padding=1)), IMAGES),
    "conv 2d, same": (conv(lambda: nn.Conv2d(3, 4, (3, 4), padding="same", dilation=(1, 3))), IMAGES),
    "conv 2d, valid": (conv(lambda: nn.Conv2d(3, 8, 3, padding="valid")), IMAGES),
    "conv 3d, padding": (conv(lambda: nn.Conv3d(2, 4, 3, (1, 2, 1), (0, 1, 2), groups=2), VOLUME), normal(*VOLUME)),
    "layer norm": (layer(lambda: nn.LayerNorm(M)), ROWS),
    "layer norm, two axes": (lambda: nn.Sequential(nn.LayerNorm((6, 6)), *head(108)), IMAGES),
    "root mean square norm, two axes": (over_tokens(lambda: nn.RMSNorm((T, M))), SEQUENCES),
    "group norm": (norm_of(lambda: nn.GroupNorm(2, 4)), IMAGES),
    "instance norm": (norm_of(lambda: nn.InstanceNorm2d(4, affine=True)), IMAGES),
    "batch norm, running": (lambda: warmed(mlp(nn.BatchNorm1d(7)), (5,)), SMALL),
    "transformer, dropout": (lambda: Tokens(0.5).eval(), tokens),
    "embedding, many tokens": (lambda: nn.Sequential(nn.Embedding(3000, 8, padding_idx=3), *head(32)), tokens),
    "embedding, wide": (lambda: nn.Sequential(nn.Embedding(11, 400, padding_idx=-2), *head(1600)), tokens),
    "embedding, one token": (lambda: nn.Sequential(nn.Embedding(11, M), nn.Tanh(), HEAD()), integers()),
    **RECURRENT,
    "tied": (tied, SMALL),
    "pruned": (pruned, IMAGES),
    "frozen": (frozen, SMALL),
}
"""Of which all parameters are seen in layers alone."""


COUPLED = {
    "recurrent": (
        whole(
            lambda self, x: self.after(self.cells(x)[0][:, -1]),
            cells=partial(nn.GRU, 2, 5, batch_first=True),
            after=lambda: nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, K)),
        ),
        normal(3, 2),
    ),
    "batch norm": (lambda: mlp(nn.BatchNorm1d(7)), SMALL),
    "not affine": (lambda: mlp(nn.BatchNorm1d(7, affine=False, track_running_stats=False)), SMALL),
    "wide": (lambda: nn.Sequential(nn.Linear(5, 300), nn.BatchNorm1d(300), *head(300)), SMALL),
    "first and last": (lambda: nn.Sequential(nn.BatchNorm1d(5), *mlp(), nn.BatchNorm1d(3)), SMALL),
    "signals": (lambda: images(nn.Conv1d(6, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), shape=SIGNAL), normal(*SIGNAL)),
    "images": (lambda: images(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)), IMAGES),
    "tokens": (lambda: nn.Sequential(nn.Embedding(11, 6), nn.Flatten(), nn.BatchNorm1d(24), HEAD()), tokens),
    "mean": (lambda: Whole(lambda self, x: self.linear(x - x.mean(0)).tanh(), linear=nn.Linear(5, 3)), SMALL),
}

# Forward passes


def tied_bias():
    net = linear(lambda self, h: self.norm(self.fc(h)), norm=partial(nn.LayerNorm, M))()
    net.norm.weight = net.norm.bias = net.fc.bias
    return net


def of_one_storage():
    """Two parameters that begin equal, in the same memory; they are two all the same."""
    net = linear(lambda self, h: self.second(self.fc(h).tanh()), second=LINEAR)().double()
    net.second.weight = nn.Parameter(net.fc.weight.data)
    return net


class Named(torch.Tensor):
    """A tensor with a name of its own, and nothing else."""


PASSES = {
    "transformer, tied": (lambda: Tokens(tie=True), tokens),
    "gru, dropout": (lambda: recurrent(nn.GRU, num_layers=2, dropout=0.5)[0]().eval(), normal(3, 2)),
    "conv 2d, transposed, grouped": (conv(lambda: nn.ConvTranspose2d(3, 6, 2, groups=3, dilation=2)), IMAGES),
    "parametric relu": (layer(lambda: nn.PReLU(M)), ROWS),
    "biases and scales": (tied_bias, ROWS),
    "two parameters in one memory": (of_one_storage, ROWS),
    "weight norm": (lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(5, 4)), nn.Tanh()), SMALL),
    "spectral norm": (lambda: nn.Sequential(parametrizations.spectral_norm(nn.Linear(5, 4))).eval(), SMALL),
    "weight whose row is the bias": (linear(lambda self, h: functional.linear(h, self.w, self.w[0]), w=w(M, M)), ROWS),
    "weight of one output": (linear(lambda self, h: self.fc(h) * functional.linear(h, self.w)[:, None], w=w(M)), ROWS),
    "weight of another type": (linear(lambda self, h: functional.linear(h, self.w.type_as(h)).sin(), w=w(M, M)), ROWS),
    "scale that is the shift": (linear(lambda self, h: functional.layer_norm(h, (M,), self.w, self.w), w=w(M)), ROWS),
    "unused layer": (whole(lambda self, x: self.fc(x), fc=lambda: nn.Linear(5, 3), idle=LINEAR), SMALL),
    "in place": (
        whole(lambda self, x: self.fc(torch.zeros(len(x), 5, dtype=x.dtype).add_(x)), fc=lambda: nn.Linear(5, 3)),
        SMALL,
    ),
}
BESIDE_A_LAYER = {
    "used elsewhere": lambda self, h: self.fc(h).tanh() @ self.fc.weight,
    "used elsewhere, detached": lambda self, h: self.fc(h).sin() @ self.fc.weight.detach(),
    "twice called, once discarded": lambda self, h: (self.fc(h), self.fc(h * 2).sin())[1],
    "twice called by two shapes": lambda self, h: self.fc(h) + self.fc(torch.stack([h, h.sin()], 1)).tanh().mean(1),
    "weight that is the input": lambda self, h: functional.linear(self.fc.weight, h).T.sin(),
    "tensors of a subclass": lambda self, h: self.fc(h.as_subclass(Named)).as_subclass(torch.Tensor).sin(),
    "layer inside vmap": lambda self, h: torch.vmap(self.fc)(h).sin(),
    "infinities that are hidden": lambda self, h: self.fc(h).masked_fill(h < -0.2, -torch.inf).softmax(1) * h,
}
PASSES |= {name: (linear(f), ROWS) for name, f in BESIDE_A_LAYER.items()}


FIXED = normal(M)(M)
TOGETHER = {
    "elu": lambda self, h: functional.elu(h) + functional.gelu(h),
    "leaky relu": lambda self, h: functional.leaky_relu(h),
    "softplus": lambda self, h: functional.softplus(h),
    "largest": lambda self, h: torch.cat(4 * [functional.max_pool2d(h.view(-1, 2, 2, 6), 2).flatten(1)], 1),
    "attended": lambda self, h: torch.bmm(h.view(-1, 4, 6).softmax(2).permute(0, 2, 1), h.view(-1, 4, 6)).flatten(1)[
        :, :M
    ],
    "average": lambda self, h: torch.cat(4 * [functional.avg_pool2d(h.view(-1, 2, 2, 6), 2).flatten(1)], 1),
    "adaptive": lambda self, h: torch.cat(3 * [functional.adaptive_avg_pool2d(h.view(-1, 2, 2, 6), 2).flatten(1)], 1),
    "difference, quotient": lambda self, h: (h - h.tanh()) / (2 + h.sigmoid()),
    "padded": lambda self, h: functional.pad(h, (1, -1)),
    "identity": lambda self, h: torch.ops.aten.alias(h),
    "reversed": lambda self, h: h.flip(1) * h,
    "stacked": lambda self, h: torch.stack(h.unbind(1)[::-1], 1) * h,
    "chunks": lambda self, h: torch.cat(h.chunk(3, 1)[::-1], 1) * h,
    "chunks, as recurrent layers take them": lambda self, h: torch.cat(h.unsafe_chunk(3, 1)[::-1], 1) * h,
}
"""Functions of which gradients of several outputs are taken together."""
APART = {
    "distances": lambda self, h: torch.cdist(h[:, None], FIXED[None])[:, 0],
    "fixed parametric relu": lambda self, h: functional.prelu(h, FIXED[0]),
    "solved": lambda self, h: torch.linalg.solve(FIXED @ FIXED.T + h[:, :, None] * h[:, None], h[..., None])[..., 0],
}
PASSES |= {name: (partial(Frame, f), ROWS) for name, f in (TOGETHER | APART).items()}


def kind(x=ROWS, /, *, make=linear, **parts):
    """Take a function as the forward pass of a kind, with these parts: between two layers, or whole."""

    def register(forward):
        PASSES[forward.__name__.replace("_", " ")] = make(forward, **parts), x
        return forward

    return register


entire = partial(kind, make=whole)
ATTENTION = partial(nn.MultiheadAttention, M, 2, batch_first=True)


class Passes:
    """Forward passes, of which `self` is the network."""

    @kind()
    def linear_layer_and_convolution(self, h):
        return functional.conv1d(self.fc(h)[:, :, None].tanh(), self.fc.weight[:, :, None])[:, :, 0]

    @kind(w=w(M, M))
    def checkpointed_and_called_outside(self, h):
        """A layer within a block that is computed again, and outside of it."""
        return self.fc(checkpoint(lambda h: self.fc(h).tanh() @ self.w, h, use_reentrant=False))

    @kind()
    def parameter_assigned(self, h):
        """A parameter that is replaced by another object after it was used."""
        y = self.fc(h).sin()
        self.fc.weight = nn.Parameter(self.fc.weight.detach() * 0.9)
        return y

    @kind(SEQUENCES, attention=partial(ATTENTION, add_bias_kv=True))
    def windows(self, h):
        """As in Swin: windows are samples of their own for as long as attention within them takes."""
        n, t, c = h.shape
        part = h.view(n, t // 2, 2, c).reshape(-1, 2, c)
        part = self.attention(part, part, part)[0] + self.fc(part)
        return part.view(n, t // 2, 2, c).reshape(n, t, c).tanh().mean(1)

    @kind(SEQUENCES, memory=lambda: nn.Linear(M, 30), attention=partial(ATTENTION, kdim=30, vdim=20))
    def cross_attention(self, h):
        memory = self.memory(h[:, :3])
        return self.fc(self.attention(h, memory, memory.sin()[..., :20])[0].mean(1))

    @kind(SEQUENCES, model=partial(nn.Transformer, M, 2, 1, 1, 20, 0.0, batch_first=True))
    def transformer(self, h):
        return self.fc(self.model(h[:, 1:], h[:, :2])).mean(1)

    @entire(normal(3, 2), cells=lambda: nn.LSTM(2, 5, batch_first=True))
    def packed_sequences(self, x):
        return self.cells(nn.utils.rnn.pack_padded_sequence(x, [3] * len(x), batch_first=True))[1][0][0]

    @kind(SEQUENCES, other=LINEAR)
    def samples_second(self, h):
        return self.other(self.fc(h.transpose(0, 1)).tanh().mean(0, keepdim=True).squeeze(0))

    @entire(normal(5, 5), fc=lambda: nn.Linear(5, 5), conv=lambda: nn.Conv1d(5, 5, 3, padding=1))
    def same_size_everywhere(self, x):
        """Samples, positions, features and outputs are five each, so that no axis can be told by its size."""
        h = self.fc(x.mT).tanh() + self.fc(x).mT
        return self.conv(h).sum(1) * self.fc.bias + self.fc(self.fc.weight).sum(0)

    @kind(anchors=w(3, M))
    def strangers_first(self, h):
        """Rows that are no samples stand before them in the axis that counts samples."""
        anchors = self.fc(torch.cat([self.anchors, h])).tanh()
        return anchors[3:] @ anchors[:3].mT @ self.anchors

    @kind(SEQUENCES, token=w(1, 1, M), some=lambda: nn.ParameterList([w(T + 1, M)(), w(3)()]), attention=ATTENTION)
    def token_of_the_class(self, h):
        h = torch.cat([self.token.expand(len(h), -1, -1), h], 1) + self.some[0]
        return self.fc(self.attention(h, h, h, need_weights=False)[0][:, 0])

    @kind(SEQUENCES)
    def ragged(self, h):
        """A layer that sees no rows at all of some samples."""
        chosen = (h[..., 0] > 0.3).nonzero(as_tuple=True)
        return torch.zeros_like(h).index_put(chosen, self.fc(h[chosen]).tanh()).sum(1)

    @entire(SMALL, fc=lambda: nn.Linear(5, 3))
    def control_flow(self, x):
        return torch.stack([self.fc(row) if row[0] > 0 else self.fc(row).exp() for row in x])

    @kind()
    def in_place_after_the_layer(self, h):
        y = self.fc(h)
        y += h
        y[:, 0] = 0
        return functional.relu_(y.mul_(2))

    @kind(scale=w(M), part=lambda: nn.Linear(M // 2, M))
    def delayed(self, h):
        """A layer is called on a view that shares its memory with what is changed later, where no gradient needs it."""
        kept = h.detach().clone()
        y = self.scale * self.part(kept[:, : M // 2].clone())
        kept[:, M // 2 :] = 3
        return self.fc(y * kept)

    @kind()
    def unwatched(self, h):
        with torch._C.DisableTorchFunction():
            return self.fc(h).sin()

    @kind()
    def another_thread(self, h):
        """A layer that another thread calls, where contexts of this one do not hold."""
        with ThreadPoolExecutor(1) as others:
            return others.submit(self.fc, h).result().sin()

    @kind()
    def hook_on_a_tensor(self, h):
        """The gradient that passes here is doubled, which makes another function of the derivative alone."""
        y = self.fc(h)
        if y.requires_grad:
            y.register_hook(lambda gradient: 2 * gradient)
        return y.sin()

    @entire(fc=BODY, anchor=w(D))
    def outputs_from_no_sample(self, x):
        return torch.cat([self.fc(x)[:, :2], self.fc(self.anchor)[:2].expand(len(x), -1), torch.ones(len(x), 1)], 1)

    @entire(
        IMAGES, conv=lambda: nn.Conv2d(3, 9, 3).to(memory_format=torch.channels_last), head=lambda: nn.Linear(144, K)
    )
    def channels_last(self, x):
        return self.head(self.conv(x.to(memory_format=torch.channels_last)).tanh().flatten(1))

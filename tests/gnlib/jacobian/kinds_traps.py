"""Modules that hide from whoever watches layers: weights by other doors, functions below, threads, other gradients."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.gnlib.jacobian.kinds import (
    IMAGES,
    ROWS,
    SEQUENCES,
    TOKENS,
    D,
    Frame,
    K,
    M,
    Whole,
    linear,
    normal,
    parameter,
    weight,
    whole,
)


class Named(torch.Tensor):
    """A tensor with a name of its own, and nothing else."""


def of_a_subclass(self, h):
    return self.fc(h.as_subclass(Named)).as_subclass(torch.Tensor).sin()


def unwatched(self, h):
    with torch._C.DisableTorchFunction():
        return self.fc(h).sin()


def threaded(self, h):
    """A layer that another thread calls, where contexts of this one do not hold."""
    with ThreadPoolExecutor(1) as others:
        return others.submit(self.fc, h).result().sin()


def norms_below(self, h):
    h = torch.layer_norm(h, (M,), self.w[0], self.w[1])
    h = torch.native_layer_norm(h, (M,), self.w[1], self.w[2], 1e-5)[0]
    return torch.group_norm(h, 4, self.w[2], self.w[0])


def convolution_below(self, x):
    h = torch.convolution(x, self.conv.weight, self.conv.bias, [2, 2], [1, 1], [1, 1], False, [0, 0], 1)
    return self.head(h.tanh().flatten(1))


def indexed(self, x):
    h = self.table[x].sum(1) + functional.one_hot(x, 420).to(self.table.dtype).mean(1) @ self.table
    return self.head((h + functional.embedding(x[:, 0], self.table)).tanh())


def delayed(self, h):
    """A layer is called on a view that shares its memory with what is changed later, where no gradient needs it."""
    kept = h.detach().clone()
    y = self.scale * self.fc(kept[:, : M // 2].clone())
    kept[:, M // 2 :] = 3
    return y * kept


def by_heads(self, h):
    """A weight whose first axis is one of heads, samples and positions merged about it."""
    n, t, _ = h.shape
    q = h.view(n * t, 4, M // 4).transpose(0, 1)
    return torch.baddbmm(self.w[:, :1], q, self.w).transpose(0, 1).reshape(n, t, M).tanh().mean(1)


def strangers_first(self, h):
    """Rows that are no samples stand before them in the axis that counts samples."""
    anchors = self.fc(torch.cat([self.anchors, h])).tanh()
    return anchors[3:] @ anchors[:3].mT @ self.anchors


def with_a_hook_on_gradients(self, h):
    """The gradient that passes here is doubled, which makes another function of the derivative alone."""
    y = self.fc(h)
    if y.requires_grad:
        y.register_hook(lambda gradient: 2 * gradient)
    return y.sin()


def assigned(self, h):
    """A parameter that is replaced by another object after it was used."""
    y = self.fc(h).sin()
    self.fc.weight = nn.Parameter(self.fc.weight.detach() * 0.9)
    return y


def ragged(self, h):
    """A layer that sees no rows at all of some samples."""
    chosen = (h[..., 0] > 0.3).nonzero(as_tuple=True)
    return torch.zeros_like(h).index_put(chosen, self.fc(h[chosen]).tanh()).sum(1)


def from_another_layer():
    """What a layer returns is the weight of the next."""

    def forward(self, x):
        w = self.fc(self.seeds)
        return functional.linear(x[:, :M], w).tanh() @ self.fc.weight[:7, :K] + self.head(x)

    return Whole(forward, fc=nn.Linear(9, M), seeds=parameter(7, 9), head=nn.Linear(D, K))


def same_size_everywhere():
    """Samples, positions, features and outputs are five each, so that no axis can be told by its size."""

    def forward(self, x):
        h = self.fc(x.mT).tanh() + self.fc(x).mT
        return self.conv(h).sum(1) * self.fc.bias + self.fc(self.fc.weight).sum(0)

    return Whole(forward, fc=nn.Linear(5, 5), conv=nn.Conv1d(5, 5, 3, padding=1))


def adaptive():
    return Whole(
        lambda self, x: self.softmax.log_prob(self.fc(x))[:, :6],
        fc=nn.Linear(D, M),
        softmax=nn.AdaptiveLogSoftmaxWithLoss(M, 12, [4, 8]),
    )


def without_samples():
    """Outputs of which some come from no sample at all."""

    def forward(self, x):
        return torch.cat([self.fc(x)[:, :2], self.fc(self.anchor)[:2].expand(len(x), -1)], 1)

    return Whole(forward, fc=nn.Linear(D, 24), anchor=parameter(D))


def weight_of_the_sample(self, h):
    return torch.stack([functional.linear(self.w, torch.outer(row, row)).sum(0) for row in h])


def modulated(self, h):
    """Scale and shift of a norm by the sample, as in networks that a text or a time conditions."""
    scale, shift = self.fc(h).chunk(2, -1)
    return functional.layer_norm(h, (M,), self.w) * (1 + scale) + shift


def checkpointed_shared(self, h):
    """A layer within a block that is computed again, and outside of it."""
    return self.fc(checkpoint(lambda h: self.fc(h).tanh() @ self.w, h, use_reentrant=False))


TRAPS = {
    "weight, of another type": (weight(lambda self, h: functional.linear(h, self.w.type_as(h)).sin(), M, M), ROWS),
    "scale that is the shift": (weight(lambda self, h: functional.layer_norm(h, (M,), self.w, self.w).sin(), M), ROWS),
    "weight of the sample": (weight(weight_of_the_sample, 5, M), ROWS),
    "modulated norm": (lambda: Frame(modulated, fc=nn.Linear(M, 2 * M), w=parameter(M)), ROWS),
    "channels last": (
        whole(
            lambda self, x: self.head(self.conv(x.to(memory_format=torch.channels_last)).tanh().flatten(1)),
            conv=lambda: nn.Conv2d(3, 9, 3).to(memory_format=torch.channels_last),
            head=lambda: nn.Linear(144, K),
        ),
        IMAGES,
    ),
    "checkpointed, and called outside": (linear(checkpointed_shared, w=lambda: parameter(M, M)), ROWS),
    "tensors of a subclass": (linear(of_a_subclass), ROWS),
    "unwatched": (linear(unwatched), ROWS),
    "another thread": (linear(threaded), ROWS),
    "functions below, norms": (weight(norms_below, 3, M), ROWS),
    "functions below, convolution": (
        whole(convolution_below, conv=lambda: nn.Conv2d(3, 9, 3), head=lambda: nn.Linear(81, K)),
        IMAGES,
    ),
    "table, indexed": (whole(indexed, table=lambda: parameter(420, M), head=lambda: nn.Linear(M, K)), TOKENS),
    "delayed": (lambda: Frame(delayed, fc=nn.Linear(M // 2, M), scale=parameter(M)), ROWS),
    "heads": (weight(by_heads, 4, M // 4, M // 4), SEQUENCES),
    "strangers first": (linear(strangers_first, anchors=lambda: parameter(3, M)), ROWS),
    "hook on a tensor": (linear(with_a_hook_on_gradients), ROWS),
    "parameter assigned": (linear(assigned), ROWS),
    "ragged": (linear(ragged), SEQUENCES),
    "weight from another layer": (from_another_layer, ROWS),
    "same size everywhere": (same_size_everywhere, normal(5, 5)),
    "adaptive softmax": (adaptive, ROWS),
    "outputs from no sample": (without_samples, ROWS),
}

"""Forward passes that do more than call one layer after another: axes, places, branches, hooks, checkpoints."""

import warnings

import torch
from torch import nn
from torch.nn import functional

from tests.gnlib.jacobian.kinds import (
    IMAGES,
    ROWS,
    SEQUENCES,
    D,
    Frame,
    K,
    M,
    T,
    linear,
    parameter,
    whole,
)


def two(between, **parts):
    return linear(between, other=lambda: nn.Linear(M, M), **parts)


# Parameters that stand by themselves


def with_token(self, h):
    h = torch.cat([self.token.expand(len(h), -1, -1), h], 1) + self.positions
    return self.encoder(h)[:, 0]


def relative(self, h):
    """As in Swin version 2: a bias of positions by a small network from a table, which no sample enters."""
    table = torch.arange(-T + 1, T, dtype=h.dtype, device=h.device)[:, None] / T
    bias = self.bias(table)[:, 0]
    at = torch.arange(T)[:, None] - torch.arange(T) + T - 1
    return ((h @ h.mT + bias[at]).softmax(-1) @ self.fc(h)).mean(1)


# Axes


def windows(self, h):
    """As in Swin: windows are samples of their own for as long as attention within them takes."""
    n, t, c = h.shape
    part = h.view(n, t // 2, 2, c).reshape(-1, 2, c)
    part = self.attention(part, part, part)[0] + self.fc(part)
    return part.view(n, t // 2, 2, c).reshape(n, t, c).tanh().mean(1)


def moved(self, h):
    h = h.transpose(0, 1)
    return self.other(self.fc(h).tanh().mean(0, keepdim=True).squeeze(0))


def unbatched(self, x):
    return self.head(torch.stack([self.conv(one).tanh().flatten() for one in x]))


# Weights from weights


def routed(self, h):
    """Each expert sees its own samples only; it may be none."""
    y, chosen = torch.zeros_like(h), h[:, 0] > 0
    y[chosen] = self.fc(h[chosen]).sin()
    y[~chosen] = self.other(h[~chosen]).tanh()
    return y


def called_otherwise(self, h):
    """The function of a layer, with weights made of another's."""
    weights = {"weight": self.fc.weight.T * 2, "bias": self.other.bias}
    return torch.func.functional_call(self.other, weights, (h,)).sin() + self.fc(h)


# Places


def after_the_layer(self, h):
    y = self.fc(h)
    y += h
    y[:, 0] = 0
    return functional.relu_(y.mul_(2))


def frozen_weight_in_place(self, h):
    """The input of a layer whose weight is not trained is free to change after it was called."""
    h = h.detach().clone()
    y = self.fc(h)
    return functional.relu_(h) * y


def only_bias():
    net = Frame(frozen_weight_in_place, fc=nn.Linear(M, M))
    net.fc.weight.requires_grad_(False)
    return net


# Functions of other kinds


class Memoryless(torch.autograd.Function):
    """A linear layer that calls torch's own inside, and writes its gradients out."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, w):
        return functional.linear(x, w)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        return gradient @ w, gradient.mT @ x


class Louder(torch.autograd.Function):
    """The identity, with twice its gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(w):
        return w.clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


def scripted_layer(x, w):
    return torch.nn.functional.linear(x, w).sin()


with warnings.catch_warnings(action="ignore"):  # scripting is deprecated, and found in older networks
    scripted_layer = torch.jit.script(scripted_layer)


def force(self, x):
    """The derivative of an energy by the data: weights enter in the backward pass too."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        energy = self.read(self.fc(x).tanh()).sum()
        return torch.autograd.grad(energy, x, create_graph=True)[0][:, :K]


# Outputs


def of_some(self, h):
    """Samples that do not enter a layer, but for its bias."""
    return self.fc(h * (h[:, :1] > 0)).sin()


def hidden_infinities(self, h):
    scores = self.fc(h).masked_fill(h < -0.2, -torch.inf).softmax(-1)
    return scores * self.other(h)


def constant(self, x):
    y = self.head(self.fc(x).tanh())
    return torch.cat([y, torch.ones_like(y[:, :1]), x[:, :1]], 1)


def hooked():
    net = Frame(lambda self, h: self.fc(h).tanh(), fc=nn.Linear(M, M))
    net.fc.register_forward_hook(lambda m, args, y: y * y + args[0])
    return net


SMALL = dict(fc=lambda: nn.Linear(D, M), head=lambda: nn.Linear(M, K))
SCALAR = dict(fc=lambda: nn.Linear(D, M), read=lambda: nn.Linear(M, 1))

PASSES = {
    "parameters in a list": (
        lambda: Frame(
            lambda self, h: (h * self.some[0] + self.named["b"]).sin(),
            some=nn.ParameterList([parameter(M)]),
            named=nn.ParameterDict({"b": parameter(M), "unused": parameter(3)}),
        ),
        ROWS,
    ),
    "token of the class, positions": (
        lambda: Frame(
            with_token,
            token=parameter(1, 1, M),
            positions=parameter(1, T + 1, M),
            encoder=nn.TransformerEncoderLayer(M, 2, 20, 0.0, batch_first=True),
        ),
        SEQUENCES,
    ),
    "bias of relative positions": (
        linear(relative, bias=lambda: nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 1, bias=False))),
        SEQUENCES,
    ),
    "windows": (linear(windows, attention=lambda: nn.MultiheadAttention(M, 2, batch_first=True)), SEQUENCES),
    "samples second": (two(moved), SEQUENCES),
    "samples one by one": (
        whole(unbatched, conv=lambda: nn.Conv2d(3, 9, 3, padding=1), head=lambda: nn.Linear(9 * 36, K)),
        IMAGES,
    ),
    "experts, samples routed": (two(routed), ROWS),
    "functional call": (two(called_otherwise), ROWS),
    "in place, after the layer": (linear(after_the_layer), ROWS),
    "in place, input of a frozen weight": (only_bias, ROWS),
    "function with a layer inside": (linear(lambda self, h: Memoryless.apply(h, self.fc.weight).sin()), ROWS),
    "function, twice the gradient": (linear(lambda self, h: self.fc(Louder.apply(h)).sin() + self.fc(h)), ROWS),
    "scripted": (linear(lambda self, h: scripted_layer(h, self.fc.weight)), ROWS),
    "force": (whole(force, **SCALAR), ROWS),
    "layer inside vmap": (linear(lambda self, h: torch.vmap(self.fc)(h).sin()), ROWS),
    "inputs of some samples": (linear(of_some), ROWS),
    "infinities that are hidden": (two(hidden_infinities), ROWS),
    "constant outputs": (whole(constant, **SMALL), ROWS),
    "hook, outputs": (hooked, ROWS),
}

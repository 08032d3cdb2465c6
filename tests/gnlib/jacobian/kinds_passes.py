"""Forward passes that do more than call one layer after another: axes, places, branches, hooks, checkpoints."""

import warnings

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.gnlib.jacobian.cases import warmed
from tests.gnlib.jacobian.kinds import (
    IMAGES,
    ROWS,
    SEQUENCES,
    D,
    Frame,
    K,
    M,
    T,
    Whole,
    linear,
    normal,
    parameter,
    whole,
)


def two(between, **parts):
    return linear(between, other=lambda: nn.Linear(M, M), **parts)


# Parameters that stand by themselves


def with_token(self, h):
    h = torch.cat([self.token.expand(len(h), -1, -1), h], 1) + self.positions
    return self.encoder(h)[:, 0]


def queried(self, h):
    """Queries that no sample enters go through a layer, then look at the samples."""
    q = self.fc(self.queries)
    return torch.einsum("qt,ntc->nqc", torch.ones(2, T, dtype=h.dtype), (h @ q.mT).softmax(1) @ q).tanh().mean(1)


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


def merged(self, h):
    """Positions before samples, in one axis."""
    t, n, c = h.transpose(0, 1).shape
    return self.fc(h.transpose(0, 1).reshape(t * n, c)).view(t, n, c).tanh().mean(0)


def unbatched(self, x):
    return self.head(torch.stack([self.conv(one).tanh().flatten() for one in x]))


def frames(self, x):
    """A video, all of whose frames go through a network of images together."""
    n, t = x.shape[:2]
    h = self.conv(x.flatten(0, 1)[:, None]).tanh()
    return self.head(self.norm(h).flatten(1).view(n, t, -1).mean(1))


def twins(self, h):
    """Two views of each sample go through the layer in one call."""
    one, two = self.fc(torch.cat([h, h.flip(1)])).tanh().chunk(2)
    return one * two


def sorted_samples(self, h):
    order = h[:, 0].argsort()
    return self.fc(h[order]).tanh()[order.argsort()]


def by_groups(self, x):
    """A kernel for each sample, made by a layer, in one convolution whose groups are the samples."""
    n, c = x.shape[:2]
    kernels = self.kernels(x.mean((2, 3))).tanh().view(n * 4, c, 3, 3)
    h = functional.conv2d(x.reshape(1, n * c, 6, 6), kernels, groups=n).view(n, -1)
    return self.head(h.sin())


# Weights from weights


def hypernetwork(self, h):
    weights = self.fc(h).view(-1, 4, 6)
    return torch.bmm(weights, h[:, :6, None])[:, :, 0].repeat(1, M // 4) * self.other(h)


def experts(self, h):
    gates = self.gate(h).softmax(-1)
    return gates[:, :1] * self.fc(h).sin() + gates[:, 1:] * self.other(h).tanh()


def one_expert(self, h):
    """The one of two experts that the gate prefers, weighted by the gate."""
    gates, which = self.gate(h).softmax(-1).max(-1, keepdim=True)
    chosen = torch.stack([self.fc(h).sin(), self.other(h).tanh()], 1).gather(1, which[:, :, None].expand(-1, 1, M))
    return gates * chosen[:, 0]


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


def ensemble(self, h):
    params, buffers = torch.func.stack_module_state(list(self.members))

    def one(p, b):
        return torch.func.functional_call(self.members[0], (p, b), (h,))

    return torch.vmap(one)(params, buffers).tanh().mean(0)


# Places


def checkpointed(self, h):
    return checkpoint(self.block, h, use_reentrant=False)


def after_the_layer(self, h):
    y = self.fc(h)
    y += h
    y[:, 0] = 0
    return functional.relu_(y.mul_(2))


def residual_in_place(self, h):
    h = h + 0
    h += self.fc(h.clone()).sin()
    h -= self.other(h.clone()).tanh()
    return h


def frozen_weight_in_place(self, h):
    """The input of a layer whose weight is not trained is free to change after it was called."""
    h = h.detach().clone()
    y = self.fc(h)
    return functional.relu_(h) * y


def only_bias():
    net = Frame(frozen_weight_in_place, fc=nn.Linear(M, M))
    net.fc.weight.requires_grad_(False)
    return net


def into_zeros(self, h):
    y = torch.zeros_like(h)
    y[:, ::2] += self.fc(h)[:, ::2]
    y[:, 1::2] = self.fc(h * h)[:, 1::2]
    return y


def lengths(self, h):
    """Only so many of the tokens of each sample are looked at."""
    return torch.stack([self.fc(one[: 1 + int(3 * one[0, 0].abs())]).tanh().mean(0) for one in h])


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


class Signs(torch.autograd.Function):
    """Signs in the forward pass, the identity in the backward one."""

    generate_vmap_rule = True

    @staticmethod
    def forward(w):
        return w.sign()

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Louder(Signs):
    """The identity, with twice its gradient."""

    @staticmethod
    def forward(w):
        return w.clone()

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


class Plain(torch.autograd.Function):
    """Of the old form, which `vmap` does not take."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return functional.linear(x, w).exp()

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        gradient = gradient * functional.linear(x, w).exp()
        return gradient @ w, gradient.mT @ x


def straight_through(self, h):
    w = self.fc.weight
    return functional.linear(h, w + (w.sign() - w).detach(), self.fc.bias) / 5


def scripted_layer(x, w):
    return torch.nn.functional.linear(x, w).sin()


with warnings.catch_warnings(action="ignore"):  # scripting is deprecated, and found in older networks
    scripted_layer = torch.jit.script(scripted_layer)


def spectral(self, h):
    f = torch.fft.rfft(h)
    return torch.fft.irfft(torch.complex(self.fc(h)[:, : M // 2 + 1], f.imag) * f, n=M)


def force(self, x):
    """The derivative of an energy by the data: weights enter in the backward pass too."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        energy = self.read(self.fc(x).tanh()).sum()
        return torch.autograd.grad(energy, x, create_graph=True)[0][:, :K]


# Outputs


def on_some(self, x):
    """Outputs that do not depend on some of the samples."""
    return self.head(self.fc(x).tanh()) * (x[:, :1] > 0)


def of_some(self, h):
    """Samples that do not enter a layer, but for its bias."""
    return self.fc(h * (h[:, :1] > 0)).sin()


def hidden_infinities(self, h):
    scores = self.fc(h).masked_fill(h < -0.2, -torch.inf).softmax(-1)
    return scores * self.other(h)


def constant(self, x):
    y = self.head(self.fc(x).tanh())
    return torch.cat([y, torch.ones_like(y[:, :1]), x[:, :1]], 1)


def hooked(register):
    def make():
        net = Frame(lambda self, h: self.fc(h).tanh(), fc=nn.Linear(M, M))
        register(net)
        return net

    return make


def recorder(net):
    """What a layer returned is kept and used again."""
    net.fc.register_forward_hook(lambda m, args, y: net.kept.append(y))


def kept_by_a_hook():
    def between(self, h):
        self.kept = []
        y = self.fc(h).tanh()
        return y * self.kept[-1]

    net = Frame(between, fc=nn.Linear(M, M))
    recorder(net)
    return net


def half_of_the_weight(module, args):
    module.weight = module.kept * 0.5


def weight_by_a_hook():
    net = Frame(lambda self, h: self.fc(h).tanh(), fc=nn.Linear(M, M))
    net.fc.kept = net.fc.weight
    del net.fc.weight
    net.fc.weight = net.fc.kept.detach()
    net.fc.register_forward_pre_hook(half_of_the_weight)
    return net


def video():
    net = Whole(frames, conv=nn.Conv2d(1, 4, 3), norm=nn.BatchNorm2d(4), head=nn.Linear(64, K))
    return warmed(net, (3, 6, 6))


SMALL = dict(fc=lambda: nn.Linear(D, M), head=lambda: nn.Linear(M, K))
SCALAR = dict(fc=lambda: nn.Linear(D, M), read=lambda: nn.Linear(M, 1))

PASSES = {
    "parameter, added": (lambda: Frame(lambda self, h: (h + self.shift).sin(), shift=parameter(M)), ROWS),
    "parameter, added to the outputs": (
        whole(lambda self, x: self.fc(x)[:, :4] + self.shift, fc=SMALL["fc"], shift=lambda: parameter(4)),
        ROWS,
    ),
    "parameter, multiplied": (lambda: Frame(lambda self, h: h * self.scale, scale=parameter(M)), ROWS),
    "parameter, one number": (
        linear(lambda self, h: h + self.alpha * self.fc(h), alpha=lambda: nn.Parameter(torch.zeros(()))),
        ROWS,
    ),
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
    "queries": (linear(queried, queries=lambda: parameter(T, M)), SEQUENCES),
    "bias of relative positions": (
        linear(relative, bias=lambda: nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 1, bias=False))),
        SEQUENCES,
    ),
    "windows": (linear(windows, attention=lambda: nn.MultiheadAttention(M, 2, batch_first=True)), SEQUENCES),
    "samples second": (two(moved), SEQUENCES),
    "samples within positions": (linear(merged), SEQUENCES),
    "samples within positions, as many": (linear(merged), normal(5, D)),
    "samples one by one": (
        whole(unbatched, conv=lambda: nn.Conv2d(3, 9, 3, padding=1), head=lambda: nn.Linear(9 * 36, K)),
        IMAGES,
    ),
    "frames": (video, normal(3, 6, 6)),
    "two views": (linear(twins), ROWS),
    "samples in order": (linear(sorted_samples), ROWS),
    "kernels of samples in groups": (
        whole(by_groups, kernels=lambda: nn.Linear(3, 108), head=lambda: nn.Linear(64, K)),
        IMAGES,
    ),
    "hypernetwork": (two(hypernetwork), ROWS),
    "experts, the better one": (two(one_expert, gate=lambda: nn.Linear(M, 2)), ROWS),
    "experts, samples routed": (two(routed), ROWS),
    "functional call": (two(called_otherwise), ROWS),
    "ensemble": (lambda: Frame(ensemble, members=nn.ModuleList([nn.Linear(M, M) for _ in range(3)])), ROWS),
    "checkpointed twice": (
        lambda: Frame(
            lambda self, h: checkpointed(self, checkpointed(self, h)), block=nn.Sequential(nn.Linear(M, M), nn.Tanh())
        ),
        ROWS,
    ),
    "in place, after the layer": (linear(after_the_layer), ROWS),
    "in place, residual": (two(residual_in_place), ROWS),
    "in place, input of a frozen weight": (only_bias, ROWS),
    "in place, into zeros": (linear(into_zeros), ROWS),
    "control flow, lengths": (linear(lengths), SEQUENCES),
    "block three times": (
        lambda: Frame(
            lambda self, h: self.blocks[0](self.blocks[1](self.blocks[0](self.blocks[0](h)))),
            blocks=nn.ModuleList([nn.Sequential(nn.Linear(M, M), nn.LayerNorm(M), nn.Tanh()) for _ in range(2)]),
        ),
        ROWS,
    ),
    "function with a layer inside": (linear(lambda self, h: Memoryless.apply(h, self.fc.weight).sin()), ROWS),
    "function of the old form": (linear(lambda self, h: Plain.apply(h, self.fc.weight).sin()), ROWS),
    "function, signs of weights": (
        linear(lambda self, h: functional.linear(h, Signs.apply(self.fc.weight)).sin()),
        ROWS,
    ),
    "function, twice the gradient": (linear(lambda self, h: self.fc(Louder.apply(h)).sin() + self.fc(h)), ROWS),
    "straight through": (linear(straight_through), ROWS),
    "scripted": (linear(lambda self, h: scripted_layer(h, self.fc.weight)), ROWS),
    "fourier": (linear(spectral), ROWS),
    "complex, real weights": (linear(lambda self, h: torch.complex(self.fc(h), self.fc(h.sin())).abs()), ROWS),
    "force": (whole(force, **SCALAR), ROWS),
    "layer inside vmap": (linear(lambda self, h: torch.vmap(self.fc)(h).sin()), ROWS),
    "outputs of some samples": (whole(on_some, **SMALL), ROWS),
    "inputs of some samples": (linear(of_some), ROWS),
    "infinities that are hidden": (two(hidden_infinities), ROWS),
    "constant outputs": (whole(constant, **SMALL), ROWS),
    "layer whose outputs are not used": (two(lambda self, h: (self.other(h), self.fc(h).sin())[1]), ROWS),
    "detached input": (two(lambda self, h: self.fc(h.detach()).sin() + self.other(h)), ROWS),
    "hook, outputs": (hooked(lambda net: net.fc.register_forward_hook(lambda m, args, y: y * y + args[0])), ROWS),
    "hook, inputs": (hooked(lambda net: net.fc.register_forward_pre_hook(lambda m, args: (args[0].sin(),))), ROWS),
    "hook, of the whole": (hooked(lambda net: net.register_forward_hook(lambda m, args, y: y.sin() * 2)), ROWS),
    "hook, outputs in place": (hooked(lambda net: net.fc.register_forward_hook(lambda m, args, y: y.mul_(2))), ROWS),
    "hook that keeps outputs": (kept_by_a_hook, ROWS),
    "hook that sets the weight": (weight_by_a_hook, ROWS),
}

"""Weights that are shared, used elsewhere too, masked, parametrised, frozen, or in layers that only look known."""

import types
import warnings

import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize, prune

from tests.gnlib.jacobian.kinds import (
    IMAGES,
    ROWS,
    SEQUENCES,
    TOKENS,
    Frame,
    K,
    M,
    Whole,
    images,
    linear,
    parameter,
    weight,
)


class Causal(nn.Conv2d):
    """As in PixelCNN: the weight itself keeps what the mask takes from a copy."""

    def forward(self, x):
        mask = torch.ones_like(self.weight)
        mask[:, :, 1, 1:] = 0
        mask[:, :, 2] = 0
        return functional.conv2d(x, self.weight * mask, self.bias, self.stride, self.padding)


class Scaled(nn.Embedding):
    def forward(self, x):
        return super().forward(x) * self.weight.shape[1] ** 0.5 + self.weight[0]


def bound_to_an_instance():
    net = linear(lambda self, h: self.fc(h).sin())()
    net.fc.forward = types.MethodType(lambda self, x: functional.linear(x.cos(), self.weight.T), net.fc)
    return net


def low_rank():
    """As in LoRA: what was trained before stays, beside it a product of low rank."""

    def between(self, h):
        return (self.base(h) + 0.5 * functional.linear(functional.linear(h, self.a), self.b)).sin()

    return Frame(between, base=nn.Linear(M, M).requires_grad_(False), a=parameter(2, M), b=parameter(M, 2))


def tied_embedding():
    def forward(self, x):
        return functional.linear(self.mix(self.embedding(x).mean(1)).tanh(), self.embedding.weight)[:, :5]

    return Whole(forward, embedding=nn.Embedding(11, 90), mix=nn.Linear(90, 90))


def tied_bias():
    net = Frame(lambda self, h: self.norm(self.first(h)), first=nn.Linear(M, M), norm=nn.LayerNorm(M))
    net.norm.weight = net.norm.bias = net.first.bias
    return net


def tied_convolution():
    net = images(nn.Conv2d(3, 3, 3, padding=1), nn.Tanh(), nn.Conv2d(3, 3, 3, padding=1, stride=2))
    net[2].weight = net[0].weight
    return net


def tied_across_kinds():
    """A convolution and a linear layer of one weight."""
    return Frame(
        lambda self, h: functional.conv1d(self.fc(h)[:, :, None].tanh(), self.fc.weight[:, :, None])[:, :, 0],
        fc=nn.Linear(M, M),
    )


def of_one_storage():
    """Two parameters that begin equal, in the same memory; they are two all the same."""
    net = Frame(lambda self, h: self.second(self.first(h).tanh()), first=nn.Linear(M, M), second=nn.Linear(M, M))
    net.double()
    net.second.weight = nn.Parameter(net.first.weight.data)
    return net


def pruned(*layers, make=None):
    def prepared():
        net = make() if make else Frame(lambda self, h: self.fc(h).sin(), fc=nn.Linear(M, M))
        for prepare in layers:
            prepare(net)
        return net

    return prepared


def with_old_weight_norm():
    with warnings.catch_warnings(action="ignore"):  # deprecated, and found in older networks
        return Frame(lambda self, h: self.fc(h).sin(), fc=nn.utils.weight_norm(nn.Linear(M, M), dim=None))


def parametrised_together():
    """Weights of two layers times one number."""
    scale = parameter(1)
    net = Frame(lambda self, h: self.fc(h).sin() + self.other(h), fc=nn.Linear(M, M), other=nn.Linear(M, M))
    for layer, name in ((net.fc, "weight"), (net.other, "bias")):
        parametrize.register_parametrization(layer, name, Whole(lambda self, w: w * self.scale, scale=scale))
    return net


def with_frozen(*names):
    def make():
        net = Frame(lambda self, h: self.norm(self.fc(h)).sin(), fc=nn.Linear(M, M), norm=nn.LayerNorm(M))
        for name in names:
            net.get_parameter(name).requires_grad_(False)
        return net

    return make


def frozen_convolution(name):
    def make():
        net = images(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Conv2d(4, 5, 3, groups=1))
        net.get_parameter(name).requires_grad_(False)
        return net

    return make


def slices(self, h):
    q, k = functional.linear(h, self.w[:M]), functional.linear(h, self.w[M : 2 * M])
    return q * k.tanh() + h @ self.w[2 * M :].T


def of_two_shapes(self, h):
    return self.fc(h) + self.fc(torch.stack([h, h.sin(), h * h], 1)).tanh().mean(1)


def masked_by_sample(self, h):
    return torch.einsum("ni,nji->nj", h, self.fc.weight * (h[:, None] > 0)) + self.fc.bias


def without_a_gradient(self, h):
    with torch.no_grad():
        teacher = self.fc(h)
    return self.fc(h).tanh() * teacher


def blocked(self, h):
    w = self.w.clone()
    w[0] = 0
    w[:, 1].mul_(2)
    return functional.linear(h, w).sin()


SHARING = {
    "tied, embedding and head": (tied_embedding, TOKENS),
    "tied, biases and scales": (tied_bias, ROWS),
    "tied, convolutions of two strides": (tied_convolution, IMAGES),
    "tied, linear layer and convolution": (tied_across_kinds, ROWS),
    "two parameters in one memory": (of_one_storage, ROWS),
    "twice called, in parallel": (linear(lambda self, h: self.fc(h) * self.fc(h.sin())), ROWS),
    "twice called, by two shapes": (linear(of_two_shapes), ROWS),
    "twice called, once discarded": (linear(lambda self, h: (self.fc(h), self.fc(h * 2).sin())[1]), ROWS),
    "twice called, once without a gradient": (linear(without_a_gradient), ROWS),
    "used elsewhere, product": (linear(lambda self, h: self.fc(h).tanh() @ self.fc.weight), ROWS),
    "used elsewhere, detached": (linear(lambda self, h: self.fc(h).sin() @ self.fc.weight.detach()), ROWS),
    "weight whose row is the bias": (weight(lambda self, h: functional.linear(h, self.w, self.w[0]), M, M), ROWS),
    "weight in slices": (weight(slices, 3 * M, M), ROWS),
    "weight, transposed": (weight(lambda self, h: functional.linear(h, self.w.T).sin(), M, M), ROWS),
    "weight, viewed": (weight(lambda self, h: functional.linear(h, self.w.view(M, M)).sin(), M * M), ROWS),
    "weight, copied and changed in place": (weight(blocked, M, M), ROWS),
    "weight, of one output": (weight(lambda self, h: h * functional.linear(h, self.w)[:, None], M), ROWS),
    "weight, einsum with heads": (
        weight(lambda self, h: torch.einsum("nti,hij->nthj", h, self.w).tanh().mean((1, 2)), 2, M, M),
        SEQUENCES,
    ),
    "weight, batched product": (
        weight(lambda self, h: torch.bmm(h.expand(3, -1, -1), self.w).tanh().sum(0), 3, M, M),
        ROWS,
    ),
    "weight that is the input": (weight(lambda self, h: functional.linear(self.w, h).T.sin(), M, M), ROWS),
    "subclass, masked weight": (lambda: images(Causal(3, 4, 3, padding=1)), IMAGES),
    "subclass of an embedding": (
        lambda: Whole(lambda self, x: self.head(self.fc(x).mean(1).tanh()), fc=Scaled(420, M), head=nn.Linear(M, K)),
        TOKENS,
    ),
    "forward of an instance": (bound_to_an_instance, ROWS),
    "pruned": (pruned(lambda net: prune.l1_unstructured(net.fc, "weight", 0.5)), ROWS),
    "pruned, convolution": (
        pruned(
            lambda net: prune.ln_structured(net[0], "weight", 0.5, 2, 0),
            lambda net: prune.l1_unstructured(net[2], "weight", 0.7),
            make=lambda: images(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Conv2d(4, 4, 3, groups=2)),
        ),
        IMAGES,
    ),
    "masked by the sample": (linear(masked_by_sample), ROWS),
    "weight norm": (lambda: Frame(lambda self, h: self.fc(h), fc=parametrizations.weight_norm(nn.Linear(M, M))), ROWS),
    "weight norm, by a hook": (with_old_weight_norm, ROWS),
    "parametrised, by one number": (parametrised_together, ROWS),
    "low rank": (low_rank, ROWS),
    "frozen, weight": (with_frozen("fc.weight"), ROWS),
    "frozen, bias": (with_frozen("fc.bias", "norm.weight"), ROWS),
    "frozen, weight of a convolution": (frozen_convolution("0.weight"), IMAGES),
}

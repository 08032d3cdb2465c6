"""Small networks of several kinds, what is computed of them by plain autograd, and real training by torch."""

import math

import torch
from torch import nn
from torch.nn import functional

from tests.gnlib.derivatives import rows_of
from tests.gnlib.jacobian.cases import Tokens, cnn, mlp, tokens, vector, warmed, wide

CASES = {
    "mlp": (mlp, vector(5)),
    "cnn": (cnn, vector(3, 8, 8)),
    "batch norm": (lambda: warmed(mlp(nn.BatchNorm1d(7)), (5,)), vector(5)),
    "transformer": (Tokens, tokens),
    "wide": (wide, vector(60)),
}


def drawn(name, n=5, seed=0):
    """Return a network in double precision, and its samples."""
    make, data = CASES[name]
    torch.manual_seed(seed)
    net, x = make().double().eval(), data(n)
    return net, x.double() if x.is_floating_point() else x


def classes(n, k):
    return torch.arange(n) % k


def plain_eigenvalues(net, x, function):
    """Return the eigenvalues of `J^T H J`, with H the second derivative of a loss by all outputs, by `H J J^T`."""
    y, jacobian = net(x).detach(), rows_of(net, x)
    hessian = torch.autograd.functional.hessian(lambda f: function(f.view_as(y)), y.flatten())
    return torch.linalg.eigvals(hessian @ jacobian @ jacobian.mT).real.sort(descending=True).values


def page(found):
    """What is printed, without its line breaks."""
    return " ".join(str(found).split())


def half(f, y):
    return (f - y).square().sum() / (2 * len(f))


LOSSES = {"mse": half, "cross_entropy": functional.cross_entropy}


def loss_at(net, x, y, loss):
    return LOSSES.get(loss, loss)(net(x), y)


def train(net, x, y, loss, optimizer, steps):
    """The losses before each of so many steps of torch, and after the last, until one is not finite."""
    losses = []
    for _ in range(steps + 1):
        value = loss_at(net, x, y, loss)
        losses.append(value.item())
        if not math.isfinite(losses[-1]):
            break
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return losses

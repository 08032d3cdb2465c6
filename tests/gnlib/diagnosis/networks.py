"""Small networks of several kinds, and what is computed of them by plain autograd."""

import torch
from torch import nn

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


def plain(net, x):
    """Return outputs, and gradients of each by each parameter, `(nk, p)`, by name."""
    y = net(x)
    named = {name: p for name, p in net.named_parameters() if p.requires_grad}
    kept = dict(retain_graph=True, allow_unused=True, materialize_grads=True)
    rows = [torch.autograd.grad(entry, [*named.values()], **kept) for entry in y.flatten()]
    blocks = [torch.stack([g.flatten() for g in column]) for column in zip(*rows, strict=True)]
    return y.detach(), dict(zip(named, blocks, strict=True))


def classes(n, k):
    return torch.arange(n) % k


def plain_eigenvalues(net, x, function):
    """Return the eigenvalues of `J^T H J`, with H the second derivative of a loss by all outputs, by `H J J^T`."""
    y, blocks = plain(net, x)
    jacobian = torch.cat([*blocks.values()], 1)
    hessian = torch.autograd.functional.hessian(lambda f: function(f.view_as(y)), y.flatten())
    return torch.linalg.eigvals(hessian @ jacobian @ jacobian.mT).real.sort(descending=True).values

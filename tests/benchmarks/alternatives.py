"""Other ways to the Gram matrix of a network's Jacobian, each as one would write it; all hold the Jacobian whole."""

import torch
from torch.func import functional_call, jacrev


def recipe(module, x):
    """Return the Gram matrix by the contraction of Jacobians that torch's tutorial on tangent kernels shows."""
    parameters = {name: p.detach() for name, p in module.named_parameters()}
    buffers = dict(module.named_buffers())

    def outputs(parameters, x):
        return functional_call(module, {**parameters, **buffers}, x[None])[0]

    jacobians = torch.vmap(jacrev(outputs), (None, 0))(parameters, x).values()
    gram = sum(torch.einsum("iap,jbp->iajb", j.flatten(2), j.flatten(2)) for j in jacobians)
    rows = gram.shape[0] * gram.shape[1]
    return gram.reshape(rows, rows) / len(x)


def loop(module, x):
    """Return the Gram matrix by one call of `autograd.grad` for each output of each sample, and one product."""
    parameters = list(module.parameters())
    rows = len(x) * module(x[:1]).shape[1]
    jacobian = x.new_empty(rows, sum(p.numel() for p in parameters))
    row = iter(jacobian)
    for sample in x.split(1):
        for output in module(sample).flatten():
            gradients = torch.autograd.grad(output, parameters, retain_graph=True)
            torch.cat([g.flatten() for g in gradients], out=next(row))
    return product(jacobian) / len(x)


def product(jacobian):
    """Return the Gram matrix where the Jacobian is there already."""
    return jacobian @ jacobian.T


def backward_passes(module, x, many):
    """Put the batch through the network once, and so many cotangents back to its parameters."""
    y = module(x)
    for _ in range(many):
        torch.autograd.grad(y, list(module.parameters()), torch.ones_like(y), retain_graph=True)

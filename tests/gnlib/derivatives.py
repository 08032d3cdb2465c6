"""Derivatives of networks by plain automatic differentiation."""

import torch


def gradients(y, parameters):
    """Gradients of each output by parameters, (nk, p), a backward pass for each."""
    kept = dict(retain_graph=True, allow_unused=True, materialize_grads=True)
    rows = [torch.autograd.grad(entry, parameters, **kept) for entry in y.flatten()]
    return torch.stack([torch.cat([g.to_dense().flatten() for g in row]) for row in rows])


def rows_of(net, *given):
    """The Jacobian of a network in double precision on all samples, in the order of its parameters."""
    parameters = [p for p in net.parameters() if p.requires_grad]  # a forward pass may put others in their place
    return gradients(net(*(x.double() if x.is_floating_point() else x for x in given)), parameters)


def by_name(net, *given):
    """The same in blocks, by the names of the parameters."""
    parameters = {name: p for name, p in net.named_parameters() if p.requires_grad}
    rows = rows_of(net, *given)
    return dict(zip(parameters, rows.split([p.numel() for p in parameters.values()], 1), strict=True))

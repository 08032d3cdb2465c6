"""Derivatives by plain automatic differentiation: of networks, and of losses beside our own."""

import pytest
import torch

from gnlib.losses import loss_of


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


def assert_plain_derivatives(loss, y, plain, f, *, rtol, atol):
    """Compare at the outputs `f`; the gradient within these tolerances, the second derivative relative to its size."""
    f = f.requires_grad_()
    n, k = f.shape
    value = plain(f, y)
    (gradient,) = torch.autograd.grad(value, f)
    hessian = torch.autograd.functional.hessian(lambda f: plain(f, y), f)
    found = loss_of(loss, y, f.detach())
    root = found.root(f.detach())
    assert found.value(f.detach()) == pytest.approx(value.item(), rel=1e-13)
    torch.testing.assert_close(found.gradient(f.detach()), n * gradient, rtol=rtol, atol=atol)
    blocks = torch.block_diag(*(root @ root.mT)).view(n, k, n, k)
    size = blocks.abs().max().item()
    torch.testing.assert_close(blocks, n * hessian, rtol=1e-9, atol=1e-12 * min(size, 1.0))

"""Value, gradient and second derivative of a loss beside those of plain automatic differentiation."""

import pytest
import torch

from gnlib.losses import loss_of


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

"""Helpers for tests of image networks."""

import torch


def size(*modules):
    return sum(p.numel() for module in modules for p in module.parameters())


def seeded(make, seed=0):
    """Return a network in double precision with scales and statistics that are not trivial, and four images for it."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = make().double()
        with torch.no_grad():
            for name, tensor in (*net.named_parameters(), *net.named_buffers()):
                if tensor.is_floating_point() and tensor.ndim == 1:
                    tensor.uniform_(0.5, 2.0) if "running" in name else tensor.add_(0.3 * torch.randn_like(tensor))
        return net, torch.randn(4, 3, 8, 8).double()

"""What the tests of networks and of their heads share."""

import torch
from gnbook.when_the_kernel_moves.networks import identity

from gnlib import GaussNewton


def gaussian(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def hess(f):
    return torch.func.jacrev(torch.func.jacrev(f))


def run_of(networks, x, function=identity):
    """The kernel of a single network, from the Jacobian."""
    return GaussNewton(networks, x, output=lambda y: function(y[0])).tangent_kernel()

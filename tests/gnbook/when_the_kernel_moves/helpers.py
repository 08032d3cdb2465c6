"""Inputs, an activation and oracles for the claims on kernels that move."""

import torch
from hypothesis import strategies as st

from tests.strategies import exact

SLACK = 1 + 1e-9
TINY = 1e-11
inputs = st.sampled_from([-2.0, -0.3, 0.0, 0.5, 1.0, 3.0])


def half_square(z):
    """The activation of Theorem 4.1."""
    return z * z / 2


def hess(f, w):
    return torch.func.jacrev(torch.func.jacrev(f))(w)


def slopes(phi, z):
    """First and second derivative of a function of one number."""
    z = exact(z)
    return torch.func.grad(phi)(z).item(), torch.func.grad(torch.func.grad(phi))(z).item()


def narrow(theta, x):
    """Eq. 31, written out once more: one unit in the bottleneck, squares above and below."""
    w1, w2, w3, w4 = theta.view(4, -1)
    root = w1.shape[0] ** 0.5
    return (w4 @ (w3 * (w2 @ (w1 * x).square() / 2 / root)).square() / 2) / root

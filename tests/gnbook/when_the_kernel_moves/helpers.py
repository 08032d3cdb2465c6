"""Inputs, an activation and an oracle for the claims on kernels that move."""

from functools import partial

import torch
from gnbook.when_the_kernel_moves.networks import StackedNetworks, identity
from hypothesis import strategies as st

from tests.gnbook.transition_to_linearity.helpers import slopes as slopes_at
from tests.strategies import exact

SLACK = 1 + 1e-9
TINY = 1e-11
inputs = st.sampled_from([-2.0, -0.3, 0.0, 0.5, 1.0, 3.0])


def half_square(z):
    """The activation of Theorem 4.1."""
    return z * z / 2


def slopes(phi, z):
    """First and second derivative of a function of one number."""
    return [slope.item() for slope in slopes_at(phi, exact(z))]


def narrow(theta, x):
    """Eq. 31, written out once more: one unit in the bottleneck, squares above and below."""
    w1, w2, w3, w4 = theta.view(4, -1)
    root = w1.shape[0] ** 0.5
    return (w4 @ (w3 * (w2 @ (w1 * x).square() / 2 / root)).square() / 2) / root


def narrow_hessian(theta, x):
    return torch.func.hessian(partial(narrow, x=x))(theta)


def narrow_network(theta):
    m = len(theta) // 4
    weights = [w.view(1, *shape) for w, shape in zip(theta.split(m), [(m, 1), (1, m)] * 2, strict=True)]
    return StackedNetworks(weights, [1, m**-0.5, 1, m**-0.5], [half_square, identity, half_square])

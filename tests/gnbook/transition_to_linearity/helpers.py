"""Networks that the claims on the transition to linearity are tried on, and their oracles."""

from itertools import pairwise

import torch
from gnbook.transition_to_linearity.ball import TANH, Smoothness
from gnbook.transition_to_linearity.wide_network import WideNetwork, normal_weights
from hypothesis import strategies as st

from tests.strategies import matrices

SMOOTH = {torch.tanh: TANH, torch.sigmoid: Smoothness(lipschitz=1 / 4, curvature=1 / 108**0.5, at_zero=1 / 2)}
SLACK = 1 + 1e-9
TINY = 1e-12


def hess(f, argnums=0):
    """Second derivatives of a function, by two backward passes: torch's forward mode warns."""
    return torch.func.jacrev(torch.func.jacrev(f, argnums), argnums)


def slopes(sigma, z):
    """First and second derivative of an activation at each entry, by automatic differentiation."""
    first = torch.func.grad(lambda z: sigma(z).sum())
    return first(z), torch.func.grad(lambda z: first(z).sum())(z)


def flat(weights):
    return torch.cat([w.flatten() for w in weights])


def values(weights, x, sigma, skip=False):
    """Input and hidden values of the networks of Eqs. 63 and 97, written out once more."""
    h = [x]
    for index, w in enumerate(weights[:-1]):
        new = sigma(w @ h[-1] / len(h[-1]) ** 0.5)
        h.append(new + h[-1] if skip and index else new)
    return h


def as_function(weights, x, sigma, skip=False):
    """The output as a function of a vector of all weights."""

    def f(theta):
        pieces = theta.split([w.numel() for w in weights])
        pieces = [piece.view(w.shape) for piece, w in zip(pieces, weights, strict=True)]
        h = values(pieces, x, sigma, skip)[-1]
        return (pieces[-1] @ h)[0] / len(h) ** 0.5

    return f


def hessian(weights, x, sigma, skip=False):
    """The matrix of second derivatives, from torch.func alone; the weights of the output layer are the last ones."""
    return hess(as_function(weights, x, sigma, skip))(flat(weights))


def gradients(weights, x, sigma, skip=False):
    """Derivatives of the output by the hidden values of each layer."""
    h = values(weights, x.clone().requires_grad_(), sigma, skip)
    return torch.autograd.grad((weights[-1] @ h[-1])[0] / len(h[-1]) ** 0.5, h[1:])


def by_units(v, z, size, sigma=torch.tanh):
    """Kernel and norm of the Hessian of the sum of v sigma(z), where w of the length `size` in z = w x, by units."""
    first, second = slopes(sigma, z)
    corner, side = (v * second).abs() * size**2, first.abs() * size
    kernel = sigma(z).square().sum() + (v * side).square().sum()
    return kernel.item(), (corner / 2 + torch.hypot(corner / 2, side)).max().item()


def first_derivatives(w, a, sigma):
    """The derivatives of the values of a layer by its input and by its weights."""
    return torch.func.jacrev(lambda a, w: sigma(w @ a / len(a) ** 0.5), (0, 1))(a, w)


def second_derivatives(w, a, sigma):
    """The three tensors of a layer, by automatic differentiation, with the output on the last axis."""
    (aa, aw), (_, ww) = hess(lambda a, w: sigma(w @ a / len(a) ** 0.5), (0, 1))(a, w)
    m, p = len(w), w.numel()
    return [t.movedim(0, 2) for t in (aa, aw.reshape(m, len(a), p), ww.reshape(m, p, p))]


@st.composite
def networks(draw, most=3, skips=True):
    """Weights, a sample, an activation and whether there are skips; Gaussian, zero, huge or rank-deficient weights."""
    skip = draw(st.booleans()) if skips else False
    depth, d, width = draw(st.integers(1, most)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    hidden = [width] * depth if skip else [draw(st.integers(1, 4)) for _ in range(depth)]
    weights = [draw(matrices(out, fan_in)) for fan_in, out in pairwise([d, *hidden, 1])]
    x = draw(matrices(1, d))[0] * draw(st.sampled_from([0.1, 1.0, 3.0]))
    return weights, x, draw(st.sampled_from(list(SMOOTH))), skip


def module(weights, sigma, skip=False):
    return WideNetwork(weights, activation=sigma, skip=skip)


def draws(widths, seed, **options):
    return normal_weights(widths, generator=torch.Generator().manual_seed(seed), **options)

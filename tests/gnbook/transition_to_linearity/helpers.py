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


def identity(z):
    return z


def hess(f, argnums=0):
    """Second derivatives of a function, by two backward passes."""
    return torch.func.jacrev(torch.func.jacrev(f, argnums), argnums)


def slopes(sigma, z):
    """First and second derivative of an activation at each entry, by automatic differentiation."""
    z = z.clone().requires_grad_()
    (first,) = torch.autograd.grad(sigma(z).sum(), z, create_graph=True)
    second = torch.zeros_like(z)
    if first.requires_grad:
        (second,) = torch.autograd.grad(first.sum(), z, materialize_grads=True)
    return first.detach(), second


def values(weights, x, sigma, skip=False):
    """Input and hidden values of the networks of Eqs. 63 and 97, written out once more."""
    h = [x]
    for index, w in enumerate(weights[:-1]):
        new = sigma(w @ h[-1] / len(h[-1]) ** 0.5)
        h.append(new + h[-1] if skip and index else new)
    return h


def function(weights, x, sigma, skip=False):
    h = values(weights, x, sigma, skip)[-1]
    return (weights[-1] @ h)[0] / len(h) ** 0.5


def hessian(weights, x, sigma, skip=False, fixed=False):
    """The matrix of second derivatives, from torch.func alone; without the output layer if that is fixed."""
    free = weights[:-1] if fixed else weights
    sizes, shapes = [w.numel() for w in free], [w.shape for w in free]

    def of_vector(v):
        pieces = [piece.view(shape) for piece, shape in zip(v.split(sizes), shapes, strict=True)]
        return function([*pieces, weights[-1]] if fixed else pieces, x, sigma, skip)

    return hess(of_vector)(torch.cat([w.flatten() for w in free]))


def gradients(weights, x, sigma, skip=False):
    """Derivatives of the output by the hidden values of each layer."""
    h = [v.detach().requires_grad_() for v in values(weights, x, sigma, skip)[1:]]
    result = []
    for index in range(len(h)):
        upper = [weights[0], *weights[index + 1 :]]  # the first one is not used

        def rest(a, upper=upper, index=index):
            for w in upper[1:-1]:
                new = sigma(w @ a / len(a) ** 0.5)
                a = new + a if skip else new
            return (upper[-1] @ a)[0] / len(a) ** 0.5

        result.append(torch.func.grad(rest)(h[index].detach()))
    return result


def second_derivatives(w, a, sigma):
    """The three tensors of a layer, by automatic differentiation, with the output on the last axis."""

    def layer(a, w):
        return sigma(w @ a / len(a) ** 0.5)

    (aa, aw), (_, ww) = hess(layer, (0, 1))(a, w)
    m, p = len(w), w.numel()
    return [t.movedim(0, 2) for t in (aa, aw.reshape(m, len(a), p), ww.reshape(m, p, p))]


@st.composite
def networks(draw, most=3, skips=True, smallest=1):
    """Weights, a sample, an activation and whether there are skips; Gaussian, zero, huge or rank-deficient weights."""
    skip = draw(st.booleans()) if skips else False
    depth, d, width = draw(st.integers(1, most)), draw(st.integers(1, 3)), draw(st.integers(smallest, 4))
    hidden = [width] * depth if skip else [draw(st.integers(smallest, 4)) for _ in range(depth)]
    weights = [draw(matrices(out, fan_in)) for fan_in, out in pairwise([d, *hidden, 1])]
    x = draw(matrices(1, d))[0] * draw(st.sampled_from([0.1, 1.0, 3.0]))
    return weights, x, draw(st.sampled_from(list(SMOOTH))), skip


def module(weights, sigma, skip=False):
    return WideNetwork(weights, activation=sigma, skip=skip)


def draws(widths, seed, **options):
    return normal_weights(widths, generator=torch.Generator().manual_seed(seed), **options)

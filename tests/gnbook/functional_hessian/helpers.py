"""Networks and oracles for the claims on both halves of the Hessian."""

import torch
from hypothesis import strategies as st

from tests.oracles import norm
from tests.strategies import gaussian, jacobian, kron, matrices, problems, seeds

dims = st.integers(1, 4)


def eq_17(omega, m):
    """The matrix of Eq. 17 as it is printed."""
    k, d = omega.shape
    block = kron(omega, torch.eye(m).double())
    upper = torch.cat([torch.zeros(k * m, k * m).double(), block], 1)
    lower = torch.cat([block.mT, torch.zeros(d * m, d * m).double()], 1)
    return torch.cat([upper, lower])


def loss_hessian(weights, x, y, scale=0.5):
    """The Hessian of `scale / n sum |f - y|^2` by automatic differentiation, layer by layer, row by row."""
    sizes = [w.numel() for w in weights]

    def loss(theta):
        outputs = x
        for part, w in zip(theta.split(sizes), weights, strict=True):
            outputs = outputs @ part.reshape(w.shape).mT
        return scale * (outputs - y).square().sum() / len(x)

    return torch.autograd.functional.hessian(loss, torch.cat([w.flatten() for w in weights]))


def outer_half(weights, x):
    j = jacobian(weights, x)
    return j.mT @ j / len(x)


def condition(matrix):
    """The pseudo-condition number of a symmetric matrix, by absolute values; None for zero."""
    values = torch.linalg.eigvalsh(matrix).abs().sort(descending=True).values
    kept = values[values > 1e-10 * values[0]]
    return (kept[0] / kept[-1]).item() if len(kept) else None


@st.composite
def hidden_layers(draw, residual=None):
    """Draw `[v, w]`, samples and targets, which a teacher gave or which are free; sometimes there is no residual."""
    weights, x = draw(problems(2, 2))
    v, w = weights
    kind = residual or draw(st.sampled_from(["free", "teacher", "none"]))
    y = gaussian(draw(seeds), len(x), len(w))
    if kind != "free":
        z = w @ v + (draw(matrices(len(w), v.shape[1])) if kind == "teacher" else 0)
        y = x @ z.mT
    return weights, x, y


def size(weights, x, y):
    """A scale for the rounding of a Hessian."""
    greatest = max(1.0, *(norm(w) for w in weights))
    return greatest ** (2 * len(weights)) * (norm(x) ** 2 + norm(x) * norm(y)) / len(x) + 1e-300

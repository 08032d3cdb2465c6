"""Networks and oracles for the claims on leaky ReLUs."""

import torch
from hypothesis import strategies as st
from torch.nn import functional

from tests.oracles import ends
from tests.strategies import derivatives, kron, matrices, nonzero_eigenvalues, orthogonal, samples, seeds

SLOPES = [0.0, 0.01, 0.3, 0.5, 0.9, 1.0]
slopes = st.sampled_from(SLOPES)


@st.composite
def networks(draw, white=False):
    """Draw `(v, w)` and samples; units and samples that are dead, zero, repeated or opposite among them."""
    d, k, m = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 9))
    if white:
        x = orthogonal(draw(seeds), d)[: draw(st.integers(1, d))] * draw(st.sampled_from([0.1, 1, 10]))
    else:
        x = draw(samples(d))
    v, w = draw(matrices(m, d)), draw(matrices(k, m))
    kind = draw(st.sampled_from(["free", "dead", "opposite", "repeated"]))
    if kind == "dead":
        v[0] = -x.abs().sum(0) * x.sum(0).sign()
    elif kind in ("opposite", "repeated"):
        v[m // 2 :] = v[0] * (-1 if kind == "opposite" else 1)
    return v, w, x


class Parts:
    """The symbols of section 5; in the names of the paper, X is x transposed."""

    def __init__(self, v, w, x, slope):
        self.v, self.w, self.x, self.slope = v, w, x, slope
        self.linear = x @ v.mT
        self.derivative = torch.ones_like(self.linear).where(self.linear > 0, slope)
        self.hidden = self.derivative * self.linear
        self.kernel, self.gamma = x @ x.mT, self.hidden @ self.hidden.mT
        self.eye = torch.eye(len(w), dtype=x.dtype)
        self.inner = [column.diag() @ self.kernel @ column.diag() for column in self.derivative.mT]
        self.outer = [torch.outer(column, column) for column in w.mT]
        self.first = sum(kron(a, b) for a, b in zip(self.inner, self.outer, strict=True))
        self.second = kron(self.gamma, self.eye)
        scale = ends(self.kernel)[1] * ends(w @ w.mT)[1] + self.linear.square().sum().item()
        self.tolerance = 1e-12 * max(1, slope**2) * scale
        self.gram = self.first + self.second


def jacobian(v, w, x, activation):
    """Return d f(x_i)_c / d (V, W) of `W activation(V x)` by automatic differentiation, rows first and sample-major."""
    v, w = v.clone().requires_grad_(), w.clone().requires_grad_()
    return derivatives(activation(x @ v.mT) @ w.mT, (v, w))


def leaky(slope):
    return lambda z: functional.leaky_relu(z, slope)


def condition(v, w, x, slope):
    """Return the pseudo-condition number from the singular values of the Jacobian, and the rank."""
    values = nonzero_eigenvalues(jacobian(v, w, x, leaky(slope)), 1)
    return ((values[0] / values[-1]).item() if len(values) and values[0] > 0 else None), len(values)

"""Networks and oracles for the claims on leaky ReLUs."""

from hypothesis import strategies as st
from torch.nn import functional

from tests.strategies import derivatives, matrices, nonzero_eigenvalues, samples

SLOPES = [0.0, 0.01, 0.3, 0.5, 0.9, 1.0]
slopes, any_slope = st.sampled_from(SLOPES), st.sampled_from([*SLOPES, -0.5, 2.0])


@st.composite
def networks(draw):
    """Draw `(v, w)` and samples; units and samples that are dead, zero, repeated or opposite among them."""
    d, k, m = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 9))
    x, v, w = draw(samples(d)), draw(matrices(m, d)), draw(matrices(k, m))
    kind = draw(st.sampled_from(["free", "dead", "opposite", "repeated"]))
    if kind == "dead":
        v[0] = -x.abs().sum(0) * x.sum(0).sign()
    elif kind in ("opposite", "repeated"):
        v[m // 2 :] = v[0] * (-1 if kind == "opposite" else 1)
    return v, w, x


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

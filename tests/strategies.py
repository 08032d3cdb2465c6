"""Instances of the claims: matrices, data and networks, hostile ones among them."""

import itertools
import math
from functools import partial

import torch
from hypothesis import settings
from hypothesis import strategies as st

from tests.oracles import products

INSTANCES = settings.default.max_examples  # of each claim, as tests/conftest.py sets it
a_hundred = settings(max_examples=min(INSTANCES, 100))
seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 5)
EPS = torch.finfo(torch.float64).eps
exact = partial(torch.tensor, dtype=torch.float64)


def gaussian(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def orthogonal(seed, n):
    return torch.linalg.qr(gaussian(seed, n, n)).Q


def attack(excess, *starts, steps=150, rate=0.03):
    """Return the largest excess that gradient ascent finds from a batch of starts."""
    variables = [start.clone().requires_grad_() for start in starts]
    optimizer = torch.optim.Adam(variables, lr=rate)
    best = -math.inf
    for _ in range(steps):
        values = excess(*variables)
        best = max(best, values.detach().nan_to_num(-math.inf).max().item())
        optimizer.zero_grad()
        (-values.nan_to_num(0.0).sum()).backward()
        for variable in variables:
            variable.grad.nan_to_num_(0.0)
        optimizer.step()
    return best


@st.composite
def matrices(draw, rows, columns, regular=False):
    """Draw a matrix; if regular, all its min(rows, columns) singular values are positive."""
    seed, least = draw(seeds), min(rows, columns)
    kinds = ["gaussian", "diagonal", "ill-conditioned", "orthogonal", "scaled"]
    kind = draw(st.sampled_from(kinds if regular else [*kinds, "integer", "low rank", "zero"]))
    if kind == "diagonal":
        entries = draw(st.lists(st.sampled_from([-3, -2, -1, 1, 2, 3]), min_size=least, max_size=least))
        return diagonal(entries, rows, columns)
    if kind in ("ill-conditioned", "orthogonal"):
        values = torch.logspace(0, -2 if kind == "ill-conditioned" else 0, least).double()
        return orthogonal(seed, rows) @ diagonal(values.tolist(), rows, columns) @ orthogonal(seed + 1, columns)
    if kind == "scaled":
        return gaussian(seed, rows, columns) * draw(st.sampled_from([1e-2, 1e2]))
    if kind == "integer":
        return gaussian(seed, rows, columns).round()
    if kind == "low rank":
        rank = draw(st.integers(1, max(1, least - 1)))
        return gaussian(seed, rows, rank) @ gaussian(seed + 1, rank, columns)
    return gaussian(seed, rows, columns) * (kind != "zero")


def diagonal(entries, rows, columns):
    matrix = torch.zeros(rows, columns, dtype=torch.float64)
    matrix.diagonal()[: len(entries)] = torch.tensor(entries, dtype=torch.float64)
    return matrix


@st.composite
def spectra(draw, n, lowest=-3):
    """Draw n eigenvalues: spread, repeated, graded over eight decades, or all but one of them equal."""
    kind = draw(st.sampled_from(["integers", "spread", "graded", "outlier"]))
    if kind == "integers":
        values = draw(st.lists(st.integers(lowest, 3), min_size=n, max_size=n))
    elif kind == "spread":
        values = draw(st.lists(st.floats(lowest, 3, allow_subnormal=False), min_size=n, max_size=n))
    elif kind == "graded":
        values = [10.0 ** (-8 * i / max(n - 1, 1)) for i in range(n)]
    else:
        values = [1.0] * (n - 1) + [draw(st.sampled_from([1e-6, 1e6, *([-1.0] if lowest < 0 else [])]))]
    return torch.tensor(values, dtype=torch.float64)


@st.composite
def symmetric(draw, n, lowest=-3):
    """Draw a symmetric matrix, diagonal or in general position; positive semi-definite if lowest is 0."""
    values = draw(spectra(n, lowest))
    if draw(st.booleans()):
        return values.diag()
    q = orthogonal(draw(seeds), n)
    matrix = q * values @ q.mT
    return (matrix + matrix.mT) / 2


@st.composite
def pairs(draw, lowest=-3):
    """Draw two symmetric matrices of one size; sometimes one is the opposite of the other, or commutes with it."""
    n = draw(sizes)
    a = draw(symmetric(n, lowest))
    how = draw(st.sampled_from(["free", "commuting", *(["opposite"] if lowest < 0 else [])]))
    if how == "opposite":
        return a, -a
    if how == "commuting":
        q = torch.linalg.eigh(a).eigenvectors
        b = q * draw(spectra(n, lowest)) @ q.mT
        return a, (b + b.mT) / 2
    return a, draw(symmetric(n, lowest))


@st.composite
def samples(draw, d, regular=False):
    """Draw samples in rows; if regular, they span all d directions."""
    seed = draw(seeds)
    n = draw(st.integers(d, d + 4)) if regular else draw(st.integers(1, d + 4))
    kinds = ["gaussian", "ill-conditioned", "off centre", "orthogonal"]
    kind = draw(st.sampled_from(kinds if regular else [*kinds, "repeated", "dead inputs"]))
    x = gaussian(seed, n, d)
    if kind == "ill-conditioned":
        x = x * torch.logspace(0, -4, d).double() @ orthogonal(seed + 1, d)
    elif kind == "off centre":
        x = x + 30
    elif kind == "orthogonal":
        x = orthogonal(seed, max(n, d))[:n, :d]
    elif kind == "repeated":
        x = x[:1].expand(n, d).clone()
    elif kind == "dead inputs" and d > 1:
        x[:, draw(st.integers(1, d - 1)) :] = 0
    return x


@st.composite
def networks(draw, fewest=2, most=4, wide=False, regular=False):
    """Draw the weights of a linear network, input layer first.

    If wide, all hidden layers have one width m > max(d, k), as Lemmas 1 and 2 of Zhao 2024 have it; otherwise each has
    a width of its own, bottlenecks included.
    """
    depth, d, k = draw(st.integers(fewest, most)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    if wide:
        hidden = [max(d, k) + draw(st.integers(1, 3))] * (depth - 1)
    else:
        hidden = draw(st.lists(sizes, min_size=depth - 1, max_size=depth - 1))
    widths = [d, *hidden, k]
    return [draw(matrices(out, fan_in, regular)) for fan_in, out in itertools.pairwise(widths)]


@st.composite
def problems(draw, fewest=2, most=4, wide=False, regular=False):
    """Draw a linear network and data for it."""
    weights = draw(networks(fewest, most, wide, regular))
    return weights, draw(samples(weights[0].shape[1], regular))


def kron(a, b):
    """Return the Kronecker product (torch.kron refuses some transposed factors)."""
    rows, columns = a.shape[0] * b.shape[0], a.shape[1] * b.shape[1]
    return torch.einsum("ij,ab->iajb", a, b).reshape(rows, columns)


def jacobian(weights, x):
    """Return d f(x_i)_c / d theta, of shape (n k, p), sample-major, from automatic differentiation alone."""
    weights = [w.clone().requires_grad_() for w in weights]
    outputs = x
    for w in weights:
        outputs = outputs @ w.mT
    return derivatives(outputs, weights)


def derivatives(outputs, parameters):
    """Return a row for each output, with its derivatives by all parameters, from automatic differentiation alone."""
    each = torch.eye(outputs.numel(), dtype=outputs.dtype).reshape(-1, *outputs.shape)
    grads = torch.autograd.grad(outputs, parameters, each, is_grads_batched=True, materialize_grads=True)
    return torch.cat([g.flatten(1) for g in grads], 1)


def nonzero_eigenvalues(jacobian, n):
    """Return the non-zero eigenvalues of J^T J / n, descending, to the digits that singular values have."""
    s = torch.linalg.svdvals(jacobian)
    return s[s > 1e3 * EPS * s[0]] ** 2 / n


def true_condition(weights, x):
    """Return the pseudo-condition number of the Gauss-Newton matrix, or None where the matrix is zero."""
    values = nonzero_eigenvalues(jacobian(weights, x), len(x))
    return (values[0] / values[-1]).item() if len(values) else None


def data_condition(x):
    """Return the pseudo-condition number of the second moment."""
    s = torch.linalg.svdvals(x)
    return ((s[0] / s[s > 1e-12 * s[0]][-1]) ** 2).item()


def square_root(sigma):
    """Return the positive semi-definite square root of a matrix."""
    values, q = torch.linalg.eigh(sigma)
    return q * values.clamp_min(0).sqrt() @ q.mT


def up_to_rounding(kappa):
    """Return a factor for the rounding of a condition number of that size."""
    return 1 + 1e-9 + 1e4 * EPS * kappa**0.5


def squares(matrix, size):
    """Return the squared singular values, descending, padded with zeros (or cut) to the given number."""
    s = torch.linalg.svdvals(matrix) ** 2
    return torch.cat([s, s.new_zeros(size)])[:size]


def terms(weights):
    """Return smax^2(A_l) smax^2(B_l) and alpha_l = smin^2(A_l) smin^2(B_l), zero-padded, of a linear network."""
    pairs = [(squares(a, len(a)), squares(b, b.shape[1])) for a, b in products(weights)]
    return torch.stack([a[0] * b[0] for a, b in pairs]), torch.stack([a[-1] * b[-1] for a, b in pairs])

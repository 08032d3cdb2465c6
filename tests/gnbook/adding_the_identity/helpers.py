"""Matrices and slopes for the tests of singular values under a skip and an activation."""

import itertools

import pytest
import torch

from tests.oracles import identity
from tests.strategies import exact, gaussian

ROUNDING = 1e-12


def taus(matrix):
    """Return the smallest and the largest eigenvalue of M + M^T (Riedi 2022, Definition 15)."""
    values = torch.linalg.eigvalsh(matrix + matrix.mT)
    return values[..., 0], values[..., -1]


def instances(n):
    """Return 200 n x n matrices: random, structured, singular, badly scaled, and close to singular with a skip."""
    g = gaussian(n, 20, n, n)
    q = torch.linalg.qr(gaussian(n + 10, 20, n, n)).Q
    kinds = [
        g,
        g * torch.logspace(-3, 2, 20, dtype=torch.float64)[:, None, None],
        (2 * g).round(),
        g + g.mT,
        g - g.mT,
        g[..., :1] @ g[..., :1, :],
        g.triu(1),
        1e-3 * g - identity(n),
        q * torch.linspace(0, 2, 20, dtype=torch.float64)[:, None, None],
        q @ torch.diag_embed(g.diagonal(dim1=-2, dim2=-1).round()) @ q.mT,
    ]
    return torch.cat(kinds)


THOUSAND = [instances(n) for n in range(1, 6)]
thousand = pytest.mark.parametrize("matrices", THOUSAND, ids=lambda matrices: f"n={matrices.shape[-1]}")


def starts(seed, n, count=48):
    return gaussian(seed, count, n, n)


def masks(n, slope):
    """Return the diagonals of all matrices of D(m, n, slope), for every m."""
    return [exact(d) for d in itertools.product([slope, 1.0], repeat=n)]


def activated(s, d):
    """Bounds of the singular values of M D and D M: s_{i+j-n}(M D) >= s_i(M) d_j and s_{i+j-1}(M D) <= s_i(M) d_j."""
    d = d.abs().sort(-1, descending=True).values
    places = range(s.shape[-1])
    upper = torch.stack([(s[..., : q + 1] * d[..., : q + 1].flip(-1)).amin(-1) for q in places], -1)
    return torch.stack([(s[..., q:] * d[..., q:].flip(-1)).amax(-1) for q in places], -1), upper

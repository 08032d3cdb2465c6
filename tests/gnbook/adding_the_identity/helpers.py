"""Matrices and slopes for the tests of singular values under a skip and an activation."""

import itertools

import pytest
import torch

from tests.oracles import identity
from tests.strategies import exact, gaussian

ROUNDING = 1e-12


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


def masks(n, slope):
    """Return the diagonals of all matrices of D(m, n, slope), for every m."""
    return [exact(d) for d in itertools.product([slope, 1.0], repeat=n)]

"""Random layers for the tests, and tests of statements in probability.

A test fails if an exact binomial test rejects the stated probability at the level 1e-6. Seeds are fixed.
"""

import math

import scipy
import torch
from gnbook.random_layers import matrices as rm
from hypothesis import strategies as st

from tests.oracles import identity
from tests.strategies import matrices

LEVEL = 1e-6
squares_of_any_kind = st.integers(1, 5).flatmap(lambda n: matrices(n, n))
scales = st.sampled_from([0.02, 0.1, 0.3, 0.6, 1.0, 3.0])
slopes = st.sampled_from([-1.0, -0.4, 0.0, 0.05, 0.3, 0.9, 1.0])


def draw(n, count, law="gaussian", seed=0):
    return rm.draw(n, count, law, generator=torch.Generator().manual_seed(seed))


def random_layers(n, count, r, law="gaussian", seed=0):
    """Layers with entries of standard deviation 1 / (r sqrt(8 n))."""
    return draw(n, count, law, seed) / (r * math.sqrt(8 * n))


def rejected(failures, probability):
    """Say whether that many failures are too many for events of at most that probability."""
    failures = failures.tolist()
    return scipy.stats.binomtest(sum(failures), len(failures), min(probability, 1), "greater").pvalue < LEVEL


def condition(matrix, rank=None):
    """Largest over smallest singular value, of the first `rank` of them."""
    singular = torch.linalg.svdvals(matrix)
    last = singular[..., -1 if rank is None else rank - 1]
    return (singular[..., 0] / last).where(last > 0, torch.inf)


def region(weight, d1, d):
    """(D1 W + I) D for diagonals given as vectors."""
    return (d1[..., :, None] * weight + identity(weight.shape[-1])) * d[..., None, :]

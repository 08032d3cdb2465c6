"""Random layers for the tests, and tests of statements in probability.

A test fails if an exact binomial test rejects the stated probability at the level 1e-6. Seeds are fixed.
"""

import math
from functools import cache

import numpy as np
import scipy
import torch
from gnbook.random_layers import matrices as rm
from hypothesis import strategies as st

from tests.oracles import identity
from tests.strategies import matrices

LEVEL = 1e-6
GRID = np.linspace(-10, 8, 361)
squares_of_any_kind = st.integers(1, 5).flatmap(lambda n: matrices(n, n))
scales = st.sampled_from([0.02, 0.1, 0.3, 0.6, 1.0, 3.0])
slopes = st.sampled_from([-1.0, -0.4, 0.0, 0.05, 0.3, 0.9, 1.0])


def draw(n, count, law="gaussian", seed=0):
    return rm.draw(n, count, law, generator=generator(seed))


def random_layers(n, count, r, law="gaussian", seed=0):
    """Layers with entries of standard deviation 1 / (r sqrt(8 n))."""
    return draw(n, count, law, seed) / (r * math.sqrt(8 * n))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@cache
def tracy_widom():
    """Return the distribution function of Tracy and Widom on the grid."""
    return rm.tracy_widom_cdf(GRID)


def distance(sample, cdf=None):
    """Kolmogorov's distance of a sample from a distribution function; Tracy's and Widom's if none is given."""
    sample = np.sort(np.asarray(sample))
    at = np.interp(sample, GRID, tracy_widom()) if cdf is None else cdf(sample)
    steps = np.arange(len(sample) + 1) / len(sample)
    return max((at - steps[:-1]).max(), (steps[1:] - at).max())


def noise(count):
    """The distance of a sample from its own law that is exceeded with probability LEVEL at most (Massart)."""
    return math.sqrt(math.log(2 / LEVEL) / (2 * count))


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


def switches(n, off, generator):
    """The diagonal of a ReLU with that many units off, at random."""
    diagonal = torch.ones(n, dtype=torch.float64)
    diagonal[torch.randperm(n, generator=generator)[:off]] = 0
    return diagonal


def parts(matrix):
    """s_1, s_n and the extreme eigenvalues of M + M^T, differentiable; of each of a batch."""
    singular, tau = torch.linalg.svdvals(matrix), torch.linalg.eigvalsh(matrix + matrix.mT)
    return singular[..., 0], singular[..., -1], tau[..., 0], tau[..., -1]

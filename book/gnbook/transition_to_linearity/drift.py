r"""How a hidden layer of ReLUs loses kernel in training: the drift of order one over the root of the width.

For :math:`f = m^{-1/2} \sum_j a_j \max(0, w_j^\top x)` training moves each :math:`w_j^\top x_i` by about
:math:`m^{-1/2}`, so only units that are so close to zero on a sample pass it: a share of :math:`m^{-1/2}` of them. Near
zero on sample i the push on a unit is one number below zero, and another above, where sample i pushes too. A unit that
sample i switches off is no longer pushed by it, so more units leave than come.
"""

import math
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from gnlib.laws import relu_kernel

STEPS, PARTICLES, SPAN = (1500, 400, 14.0)  # of time; units at a boundary; times that of the slowest eigenvector


def kernel_drift(
    x: Float[np.ndarray, "n d"], gap: Float[np.ndarray, " n"], *, draws: int = 20_000, seed: int = 0
) -> Float[np.ndarray, "n n"]:
    r"""Return the limit of :math:`\sqrt m\, (K - K_0)` for gradient flow of both layers on some samples.

    The patterns of other samples are drawn for units whose weights are orthogonal to a sample; at each boundary the
    flow of units is followed step by step. Errors are about two hundredths of the largest entry.
    """
    gram, norms = x @ x.T, np.linalg.norm(x, axis=1)
    sizes = np.outer(norms, norms)
    values, vectors = np.linalg.eigh(sizes * relu_kernel(gram / sizes, depth=2))
    times = np.concatenate([[0.0], np.geomspace(1e-3 / values[-1], SPAN / values[0], STEPS)])
    paces = np.exp(-times[:, None] * values) * (vectors.T @ gap) @ vectors.T  # y - f at each time
    rng, drift = np.random.default_rng(seed), np.zeros_like(gram)
    for i in range(len(x)):
        weights = rng.standard_normal((draws, x.shape[1]))
        weights -= np.outer(weights @ x[i], x[i] / norms[i] ** 2)
        active = weights @ x.T > 0
        active[:, i] = False
        patterns, counts = np.unique(active, axis=0, return_counts=True)
        below = (paces * gram[i]) @ patterns.T  # of each pattern at each time
        gained = gained_units(below, below + paces[:, i : i + 1] * gram[i, i], times)
        patterns[:, i] = True
        drift[i] = gram[i] * ((counts / draws * gained) @ patterns) / (math.pi * norms[i])
    return drift + drift.T - np.diag(drift.diagonal())


def gained_units(
    below: Float[np.ndarray, "t p"], above: Float[np.ndarray, "t p"], times: Float[np.ndarray, " t"]
) -> Float[np.ndarray, " p"]:
    r"""Return by how many more units are above zero in the end, both signs of the output weight together.

    Units of density one follow :math:`\dot u = \pm` `above` where they are above zero, :math:`\pm` `below` elsewhere.
    Where neither changes its sign it is :math:`\int |\text{below}| - |\text{above}|`: what comes less what leaves.
    """
    reach = 1.1 * np.trapezoid(np.maximum(np.abs(below), np.abs(above)), times, axis=0) + 1e-12
    gained = np.zeros(below.shape[1])
    for sign in (1, -1):
        u = reach[:, None] * (np.arange(PARTICLES) + 0.5 - PARTICLES / 2) / (PARTICLES / 2)
        ended = []
        for step, (start, end) in enumerate(pairwise(times)):
            u += sign * (end - start) * np.where(u > 0, above[step][:, None], below[step][:, None])
            ended.append((u > 0).sum(1) - PARTICLES / 2)
        late = np.mean(ended[-len(ended) // 20 :], axis=0)  # units held at zero are above it for a part of the time
        gained += late * 2 * reach / PARTICLES
    return gained

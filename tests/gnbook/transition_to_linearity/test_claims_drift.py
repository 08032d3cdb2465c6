r"""The order in which the kernel of a wide layer changes: a drift for kinks, none for smooth activations.

For :math:`f = m^{-1/2} \sum_j a_j \max(0, w_j^\top x)` training moves each :math:`w_j^\top x_i` by about
:math:`m^{-1/2}`, so only units that are so close to zero on a sample pass it: a share of :math:`m^{-1/2}` of them. Near
zero on sample i the push on a unit is one number below zero, and another above, where sample i pushes too. A unit that
sample i switches off is no longer pushed by it, so more units leave than come.

Of a network and its linear model: how far their descents can part, given the Hessians along the way.
"""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from gnbook.transition_to_linearity.ball import TANH
from hypothesis import given
from hypothesis import strategies as st

from gnlib.laws import relu_kernel
from tests.gnbook.transition_to_linearity.helpers import SLACK, TINY
from tests.oracles import norm
from tests.strategies import exact, gaussian, instances, seeds

STEPS, PARTICLES, SPAN = (1500, 400, 14.0)  # of time; units at a boundary; times that of the slowest eigenvector


def descent(m, x, gap, seed, rate=0.5, tolerance=1e-7):
    """The kernel of both layers before and after descent until every output has moved by its gap."""
    rng = np.random.default_rng(seed)
    a, w = rng.standard_normal(m), rng.standard_normal((m, x.shape[1]))
    before, rate = kernel(a, w, x), rate / (x**2).sum(1).max() / len(x)
    f = np.maximum(w @ x.T, 0).T @ a / m**0.5
    y = f + gap
    while np.abs(f - y).max() > tolerance:
        z, r = w @ x.T, rate * (f - y) / m**0.5
        a, w = a - np.maximum(z, 0) @ r, w - ((z > 0) * a[:, None] * r) @ x
        f = np.maximum(w @ x.T, 0).T @ a / m**0.5
    return before, kernel(a, w, x)


def kernel(a, w, x):
    h = np.maximum(w @ x.T, 0)
    b = (h > 0) * a[:, None]
    return (h.T @ h + (x @ x.T) * (b.T @ b)) / len(a)


@pytest.mark.claim("The drift of one sample", verdict="holds")
@pytest.mark.parametrize("gap, size", [(1.0, 1.0), (-2.0, 1.0), (1.0, 2.0)])
def test_one_sample_loses_its_gap_over_pi(gap, size):
    m, runs, x = 20_000, 60, np.array([[size, 0.0]])
    pairs = [descent(m, x, np.array([gap]), seed) for seed in range(runs)]
    found = np.array([(after - before) / before for before, after in pairs]) * m**0.5
    law = -abs(gap) / (math.pi * size)
    scatter = (4 * abs(gap) / (math.pi * size)) ** 0.5 * m**-0.25
    assert found.mean() == pytest.approx(law, abs=3 * scatter / runs**0.5 + 0.04 * abs(law))
    assert found.std() == pytest.approx(scatter, rel=0.3)


def kernel_drift(x, gap, draws=20_000):
    r"""The limit of :math:`\sqrt m\, (K - K_0)` for gradient flow of both layers on some samples.

    The patterns of other samples are drawn for units whose weights are orthogonal to a sample; at each boundary the
    flow of units is followed step by step. Errors are about two hundredths of the largest entry.
    """
    gram, norms = x @ x.T, np.linalg.norm(x, axis=1)
    sizes = np.outer(norms, norms)
    values, vectors = np.linalg.eigh(sizes * relu_kernel(gram / sizes, depth=2))
    times = np.concatenate([[0.0], np.geomspace(1e-3 / values[-1], SPAN / values[0], STEPS)])
    paces = np.exp(-times[:, None] * values) * (vectors.T @ gap) @ vectors.T  # y - f at each time
    rng, drift = np.random.default_rng(0), np.zeros_like(gram)
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


def gained_units(below, above, times):
    r"""By how many more units are above zero in the end, both signs of the output weight together.

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


@pytest.mark.claim("The drift of several samples", verdict="holds")
def test_three_samples_drift_as_foretold():
    rng = np.random.default_rng(5)
    x, gap = rng.standard_normal((3, 4)), np.array([1.2, -0.8, 0.9])
    x /= np.linalg.norm(x, axis=1)[:, None]
    law, m, runs = kernel_drift(x, gap), 20_000, 60
    pairs = [descent(m, x, gap, seed, rate=1.0, tolerance=1e-3) for seed in range(runs)]
    found = m**0.5 * np.array([after - before for before, after in pairs])
    assert np.abs(found.mean(0) - law).max() < 0.055 < np.abs(law).max() / 3
    assert np.abs(found.std(0)).max() / runs**0.5 < 0.02


def parted(f, w, y, share, steps):
    """Step by step: how far outputs and the linear model are apart, and the bound over that on the Hessian.

    The rate is a share of 1 / lambda_max; at a share of 2 the linear model is barely stable.
    """
    jacobian, start, n = torch.func.jacrev(f)(w), w, len(y)
    largest, kernel = norm(jacobian), jacobian @ jacobian.mT / n
    rate, linear, path, total = share * n / largest**2, f(w) - y, 0.0, 0.0
    for _ in range(steps):
        residual = f(w) - y
        step = -rate / n * torch.func.vjp(f, w)[1](residual)[0]
        total += rate / n * largest * path * residual.norm().item()
        w, path, linear = w + step, path + step.norm().item(), linear - rate * kernel @ linear
        assert (w - start).norm() <= path * SLACK
        yield (f(w) - y - linear).norm().item(), path**2 / 2 + total


@pytest.mark.claim("Descent of the linear model", verdict="holds")
@instances
@given(
    seeds,
    *(st.integers(1, most) for most in (3, 5, 3, 2)),
    st.sampled_from([0.0, 1.0, 5.0]),
    st.sampled_from([1e-3, 0.5, 1.0, 2.0]),
    st.sampled_from([0.1, 1.0, 30.0]),
)
def test_network_and_linear_model_part_no_further_than_hessians_allow(seed, d, m, n, k, scale, share, far):
    x, v, w = gaussian(seed, n, d), gaussian(seed + 1, k, m) / m**0.5, scale * gaussian(seed + 2, m * d)

    def f(w):  # one hidden layer, of which the first weights move
        return (torch.tanh(x @ w.view(m, d).mT) @ v.mT).flatten()

    # the second derivative by u is V (tanh'' * X u * X u), so of sample i at most |V| |x_i|^2 max |tanh''| for unit u
    bound = TANH.curvature * norm(v) * (x.square().sum(1) ** 2).sum().sqrt().item()
    for apart, over in parted(f, w, far * gaussian(seed + 3, n * k), share, 10):
        assert apart <= bound * over * SLACK + TINY * (1 + far)
    move = far * gaussian(seed + 4, len(w))
    change = torch.func.jacrev(f)(w) @ move
    assert (f(w + move) - f(w) - change).norm() <= SLACK * bound / 2 * move.square().sum() + TINY


@pytest.mark.claim("Descent of the linear model", verdict="holds")
@pytest.mark.parametrize("g", [0.1, 1.0, 7.0])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 10.0])
def test_a_parabola_attains_both_after_one_step(g, epsilon):
    [(apart, over)] = parted(lambda w: g * w + epsilon * w**2 / 2, exact([0.0]), exact([2.0]), 0.3, 1)
    assert apart == pytest.approx(epsilon * over, rel=1e-10)
    assert apart == pytest.approx(epsilon / 2 * (0.6 / g) ** 2, rel=1e-10)

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
from hypothesis import given
from hypothesis import strategies as st

from gnlib.laws import relu_kernel
from tests.gnbook.transition_to_linearity.helpers import SLACK, TINY
from tests.strategies import exact, gaussian, instances, seeds

STEPS, PARTICLES, SPAN = (1500, 400, 14.0)  # of time; units at a boundary; times that of the slowest eigenvector
ACTIVATIONS = {
    "ReLU": (lambda z: np.maximum(z, 0), lambda z: (z > 0) * 1.0),
    "tanh": (np.tanh, lambda z: 1 / np.cosh(z) ** 2),
}


def trained(m, x, gap, seed, kind="ReLU", rate=0.5, tolerance=1e-7):
    """Both layers before and after descent until every output has moved by its gap, and the path of the outputs."""
    sigma, slope = ACTIVATIONS[kind]
    rng = np.random.default_rng(seed)
    a, w = rng.standard_normal(m), rng.standard_normal((m, x.shape[1]))
    start, rate = (a, w), rate / (x**2).sum(1).max() / len(x)
    path = [sigma(w @ x.T).T @ a / m**0.5]
    y = path[0] + gap
    while np.abs(path[-1] - y).max() > tolerance:
        z, r = w @ x.T, rate * (path[-1] - y) / m**0.5
        a, w = a - sigma(z) @ r, w - (slope(z) * a[:, None] * r) @ x
        path.append(sigma(w @ x.T).T @ a / m**0.5)
    return start, (a, w), np.array(path)


def kernel(weights, x, kind="ReLU"):
    (a, w), (sigma, slope) = weights, ACTIVATIONS[kind]
    h, b = sigma(w @ x.T), slope(w @ x.T) * a[:, None]
    return (h.T @ h + (x @ x.T) * (b.T @ b)) / len(a)


@pytest.mark.claim("The drift of one sample", verdict="holds")
@pytest.mark.parametrize("gap, size", [(1.0, 1.0), (-2.0, 1.0), (1.0, 2.0)])
def test_one_sample_loses_its_gap_over_pi(gap, size):
    m, runs, x = 20_000, 60, np.array([[size, 0.0]])
    found = []
    for seed in range(runs):
        start, end, _ = trained(m, x, np.array([gap]), seed)
        k = kernel(start, x)[0, 0]
        found.append((kernel(end, x)[0, 0] - k) / k)
    found, law = np.array(found) * m**0.5, -abs(gap) / (math.pi * size)
    scatter = (4 * abs(gap) / (math.pi * size)) ** 0.5 * m**-0.25
    assert found.mean() == pytest.approx(law, abs=3 * scatter / runs**0.5 + 0.04 * abs(law))
    assert found.std() == pytest.approx(scatter, rel=0.3)


def kernel_drift(x, gap, *, draws=20_000, seed=0):
    r"""The limit of :math:`\sqrt m\, (K - K_0)` for gradient flow of both layers on some samples.

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
    pairs = [trained(m, x, gap, seed, rate=1.0, tolerance=1e-3)[:2] for seed in range(runs)]
    found = m**0.5 * np.array([kernel(end, x) - kernel(start, x) for start, end in pairs])
    assert np.abs(found.mean(0) - law).max() < 0.055 < np.abs(law).max() / 3
    assert np.abs(found.std(0)).max() / runs**0.5 < 0.02


CURVED = 4 / (3 * math.sqrt(3))  # the largest second derivative of tanh
SHARES = st.sampled_from([1e-3, 0.5, 1.0, 2.0])  # of 1 / lambda_max; at 2 the linear model is barely stable


def parted(f, w, y, rate, steps):
    """Step by step: how far outputs and the linear model are apart, the bound over that on the Hessian, and weights."""
    jacobian, start, n = torch.func.jacrev(f)(w), w, len(y)
    kernel = jacobian @ jacobian.mT / n
    linear, path, total = f(w) - y, 0.0, 0.0
    largest = torch.linalg.matrix_norm(jacobian, 2).item()
    found = []
    for _ in range(steps):
        residual = f(w) - y
        step = -rate / n * torch.func.vjp(f, w)[1](residual)[0]
        total += rate / n * largest * path * residual.norm().item()
        w, path, linear = w + step, path + step.norm().item(), linear - rate * kernel @ linear
        found.append(((f(w) - y - linear).norm().item(), path**2 / 2 + total, w))
    assert (w - start).norm() <= path * SLACK
    return found


def stable(f, w, n):
    return n / torch.linalg.matrix_norm(torch.func.jacrev(f)(w), 2).item() ** 2


def network(seed, d, m, n, k, scale):
    """A network of one hidden layer of m units of which the first weights move, and a bound on its second derivative.

    As a function of a change u of these weights it has the second derivative `V (tanh'' * X u * X u)` for each sample.
    """
    x, v, w = gaussian(seed, n, d), gaussian(seed + 1, k, m) / m**0.5, scale * gaussian(seed + 2, m * d)

    def f(w):
        return (torch.tanh(x @ w.view(m, d).mT) @ v.mT).flatten()

    # of sample i: |V| max |x_i u_j| |X u|, at most |V| |x_i|^2 for unit vectors u
    largest = torch.linalg.matrix_norm(v, 2) * (x.square().sum(1) ** 2).sum().sqrt()
    return f, w, CURVED * largest.item()


@pytest.mark.claim("Descent of the linear model", verdict="holds")
@instances
@given(
    seeds,
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 2),
    st.sampled_from([0.0, 1.0, 5.0]),
    SHARES,
    st.sampled_from([0.1, 1.0, 30.0]),
)
def test_network_and_linear_model_part_no_further_than_hessians_allow(seed, d, m, n, k, scale, share, far):
    f, w, bound = network(seed, d, m, n, k, scale)
    y = far * gaussian(seed + 3, n * k)
    rate = share * stable(f, w, n * k)
    for apart, over, _ in parted(f, w, y, rate, 10):
        assert apart <= bound * over * SLACK + TINY * (1 + far)
    move = far * gaussian(seed + 4, len(w))
    change = torch.func.jacrev(f)(w) @ move
    assert (f(w + move) - f(w) - change).norm() <= SLACK * bound / 2 * move.square().sum() + TINY


@pytest.mark.claim("Descent of the linear model", verdict="holds")
@pytest.mark.parametrize("g", [0.1, 1.0, 7.0])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 10.0])
def test_a_parabola_attains_both_after_one_step(g, epsilon):
    def f(w):
        return g * w + epsilon * w**2 / 2

    [(apart, over, _)] = parted(f, exact([0.0]), exact([2.0]), 0.3 / g**2, 1)
    assert apart == pytest.approx(epsilon * over, rel=1e-10)
    assert apart == pytest.approx(epsilon / 2 * (0.6 / g) ** 2, rel=1e-10)

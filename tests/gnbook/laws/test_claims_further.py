"""Layers that count differently, branches with a factor, scatter of one network, circular convolutions.

What several outputs do to the ends: networks that are drawn against the first order.
"""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import nn

from gnlib import GaussNewton
from gnlib.laws import deep_linear
from gnlib.laws.network import DEVIATION, TRACY_WIDOM, Network
from gnlib.laws.recursion import Layer, edge, edge_scatter, last, layers_curve, sensitivity, turn
from tests.gnbook.laws.helpers import deep, terms
from tests.gnlib.laws.networks import spectrum


@pytest.mark.claim("Layers that count differently", verdict="holds")
@pytest.mark.parametrize("rates", [[1.0, 0.0, 0.0, 2.0], [0.1, 3.0, 0.5, 0.0], [0.0, 1.0, 0.2, 1.0]], ids=str)
def test_networks_whose_layers_count_differently_have_the_ends(rates):
    law = deep_linear(4, 240, 120, rates=rates)
    drawn = np.mean([spectrum([120, 240, 240, 240], rates=rates, seed=seed)[[0, -1]] for seed in range(4)], axis=0)
    assert drawn == pytest.approx([law.lower, law.upper], rel=0.1)


def closed_form(sigma, ratio, side, gaussian):
    """An end of the spectrum of infinitely many branches with a factor: the first turn of a curve."""
    tau = sigma**2

    def end(w):
        theta = np.emath.sqrt(ratio * w * (1 + ratio * w)) * tau
        c, s = np.cosh(theta).real, (np.sinh(theta) / theta).real * tau
        d, n = c + ratio * w * s, w * c + w * (1 + ratio * w) * s
        return 1 + d * (d + n) / w * ((1 + ratio * n / d) / ratio if gaussian else 1)

    x = np.linspace(-20, 8, 5001)  # logarithms of |w|, up to the first turn, then between its neighbours
    with np.errstate(all="ignore"):  # far beyond the turn
        turned = np.argmax(np.diff(-side * end(side * np.exp(x))) < 0)
        near = minimize_scalar(
            lambda y: side * end(side * math.exp(y)), bounds=x[[turned - 1, turned + 1]], method="bounded"
        )
    return side * near.fun


def forward_multiplier(layers, sigma, ratio, gaussian):
    """The recursion for a first and a last layer that have no factor, the first one Gaussian or orthonormal."""
    branch, inner, width = sigma / layers**0.5, layers - 2, 100
    return deep_linear(
        layers,
        width,
        round(ratio * width),
        scale=[1.0 if gaussian else 0.0, *[branch] * inner, 1.0],
        skip=[0.0 if gaussian else 1.0, *[1.0] * inner, 0.0],
        rates=[1.0, *[branch**2] * inner, 1.0],
    )


@pytest.mark.claim("A factor in the forward pass", verdict="holds")
@pytest.mark.parametrize(("sigma", "ratio"), [(0.5, 1.0), (1.5, 0.5)])
@pytest.mark.parametrize("gaussian", [False, True], ids=["orthonormal", "Gaussian"])
def test_the_recursion_tends_to_the_closed_form(sigma, ratio, gaussian):
    """Like 1 / L, so that two depths give the limit."""
    few, many = (forward_multiplier(layers, sigma, ratio, gaussian) for layers in (150, 300))
    for side, name in ((-1, "lower"), (1, "upper")):
        few_end, many_end = (getattr(law, name) / (1 + sigma**2 / n) ** (n - 2) for law, n in ((few, 150), (many, 300)))
        limit = 2 * many_end - few_end
        assert limit == pytest.approx(closed_form(sigma, ratio, side, gaussian), rel=1e-3)
    assert few.kappa < many.kappa


@pytest.mark.claim("Density at an edge", verdict="holds")
@pytest.mark.parametrize(
    "keywords",
    [dict(widths=200), dict(widths=120, skip=1.0, scale=0.5), dict(widths=[200, 300, 150], rates=[1, 0, 2, 1])],
    ids=["plain", "skips", "rates"],
)
def test_the_density_at_an_edge_is_a_root_with_the_scale(keywords):
    law = deep_linear(4, data=100, **keywords)
    for side, end, moments in ((1, law.upper, law.scatter.upper), (-1, law.lower, law.scatter.lower)):
        delta = abs(moments[0] / TRACY_WIDOM) * end
        near = 1e-6 * (law.upper - law.lower)
        found = law.density([end - side * near])[0] * 100
        assert found == pytest.approx(math.sqrt(near / delta**3) / math.pi, rel=5e-3)


@pytest.mark.claim("Scatter of one network", verdict="open")
@pytest.mark.parametrize(("layers", "ratio"), [(2, 0.25), (4, 0.5), (8, 0.5)])
@pytest.mark.parametrize("rank", [50, 100])
def test_edges_of_drawn_sums_scatter_like_tracy_and_widoms_law(layers, ratio, rank):
    """The terms of all layers weigh 1, so that norms of rows do not scatter: means and deviations of 40 networks."""
    width, draws = round(rank / ratio), 40
    curve = layers_curve(rank, [Layer(rank, 1.0, 1 / width)] * (layers - 1))
    widths = [width] * layers
    drawn = np.array([spectrum(widths, rank=rank, weights=[1.0] * layers, seed=seed)[[0, -1]] for seed in range(draws)])
    for side, found in zip((-1, 1), drawn.T, strict=True):
        start = side * 0.7 * rank
        end, delta = edge(curve, side, abs(start)), edge_scatter(curve, turn(curve, side, abs(start)))
        logs = np.log(found / end)
        assert logs.mean() == pytest.approx(side * TRACY_WIDOM * delta, abs=0.6 * delta)
        assert logs.std() == pytest.approx(DEVIATION * delta, rel=0.35)


def convolution(channels, taps, positions, seed):
    """Weights of stacked circular convolutions, and the eigenvalues of their Gram matrix on white data."""

    class Circular(nn.Module):
        def __init__(self):
            super().__init__()
            generator = torch.Generator().manual_seed(seed)
            sizes = zip(channels[1:], channels, strict=False)
            draw = (
                torch.randn(m, c, taps, generator=generator, dtype=torch.float64) / (c * taps) ** 0.5 for m, c in sizes
            )
            self.weights = nn.ParameterList(draw)

        def forward(self, x):
            for w in self.weights:
                x = nn.functional.conv1d(nn.functional.pad(x, (0, taps - 1), mode="circular"), w)
            return x.flatten(1)

    size = channels[0] * positions
    network = Circular()
    x = size**0.5 * torch.eye(size, dtype=torch.float64).reshape(size, channels[0], positions)
    values = np.linalg.eigvalsh(GaussNewton(network, x).gram())
    return [w.detach().numpy() for w in network.weights], values[-channels[-1] * size :]


def by_frequency(weights, positions):
    """Eigenvalues of the Gauss-Newton matrices of the deep linear networks of each frequency, times the positions."""
    found = []
    for f in range(positions):
        maps = [w @ np.exp(2j * np.pi * f * np.arange(w.shape[2]) / positions) for w in weights]
        below, total = np.eye(maps[0].shape[1]), 0
        for index, w in enumerate(maps):
            above = np.eye(maps[-1].shape[0])
            for other in maps[:index:-1]:
                above = above @ other
            total = total + np.kron(above @ above.conj().T, (below.conj().T @ below).conj())
            below = w @ below
        found.extend(positions * np.linalg.eigvalsh(total))
    return np.sort(found)


@pytest.mark.claim("Convolutions by frequency", verdict="holds if")
def test_circular_convolutions_of_full_kernels_are_a_linear_network_for_each_frequency():
    weights, found = convolution([3, 5, 4, 2], 4, 4, seed=0)
    np.testing.assert_allclose(found, by_frequency(weights, 4), rtol=1e-9)


@pytest.mark.claim("Convolutions by frequency", verdict="holds if")
@pytest.mark.parametrize(("taps", "positions", "limit"), [(2, 3, 2.0), (3, 5, 3.0), (3, 3, 1.0)])
def test_fewer_taps_couple_the_frequencies(taps, positions, limit):
    """Two layers of many channels: the walk of two uniform steps decides, 1 : 2 : 1 and 1 : 2 : 3 : 2 : 1 ways."""
    weights, found = convolution([1, 3000, 1], taps, positions, seed=1)
    alone = by_frequency(weights, positions)
    assert found[-1] / found[0] == pytest.approx(limit, rel=0.15)
    assert alone[-1] / alone[0] < 1.15


def first_order(network, rank, side):
    """a_l e_l over the end, e_l its derivative by a_l, from the law alone."""
    curve = network.curve(network.rows)
    v = turn(curve, side, 0.7 * rank)
    below = 1 - sensitivity(rank, network.layers(network.rows), v)[::-1]
    return np.diff([0, *below, 1]), last(curve, v).z * network.unit


CASES = {"plain": (4, 120, 480, 3, 0.0), "eight outputs": (8, 80, 960, 4, 0.0), "skips": (4, 120, 480, 4, 1.0)}


@pytest.mark.claim("Several outputs", verdict="holds")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_ends_are_moved_by_the_ends_of_a_small_matrix(case):
    """Where each A_l A_l' deviates by a quarter, the ends move as foretold to a hundredth."""
    k, d, m, layers, beta = case
    above, below = terms(deep([d, *[m] * (layers - 1), k], np.random.default_rng(1), beta))
    weights = [(1 + beta**2) ** (layers - 1 - i) for i in range(layers)]
    whole = np.linalg.eigvalsh(sum(np.kron(a, b) for a, b in zip(above, below, strict=True)))
    one = np.linalg.eigvalsh(sum(w * b for w, b in zip(weights, below, strict=True)))
    network = Network(d, [m] * (layers - 1), [1.0] * layers, [beta] * layers, [1.0] * layers, False, np.ones(d))
    for side, i in ((1, -1), (-1, 0)):
        shares, _ = first_order(network, d, side)
        small = sum(e * (a / w - np.eye(k)) for e, a, w in zip(shares, above, weights, strict=True))
        moved, foretold = whole[i] / one[i] - 1, np.linalg.eigvalsh(small)[i]
        assert moved == pytest.approx(foretold, abs=0.006)
        assert abs(foretold) > 0.025


@pytest.mark.claim("Several outputs", verdict="holds")
def test_the_shares_are_derivatives_of_the_end():
    d, m, layers = 50, 120, 4
    network = Network(d, [m] * 3, [1.0] * layers, [0.0] * layers, [1.0] * layers, False, np.ones(d))
    for side, name in ((1, "upper"), (-1, "lower")):
        shares, end = first_order(network, d, side)
        assert shares.sum() == pytest.approx(1, abs=1e-9) and end == pytest.approx(
            getattr(deep_linear(layers, m, d), name)
        )
        for j in range(2, layers + 1):  # a factor 1 + h of layer j is one of the terms below it
            h, ends = 1e-5, []
            for sign in (1, -1):
                rows = network.rows.copy()
                rows[j - 1] *= 1 + sign * h
                curve = network.curve(rows)
                ends.append(last(curve, turn(curve, side, 35.0)).z * network.unit * (1 + sign * h))
            assert (ends[0] - ends[1]) / (2 * h * end) == pytest.approx(shares[: j - 1].sum(), abs=1e-4)

"""One hidden layer of ReLUs as a series of powers, and how wide it must be for a kernel as regular as in the limit."""

import math

import pytest
import scipy
import torch
from gnbook.deep_nonlinear.duals import leaky_relu
from gnbook.deep_nonlinear.wide_limit import wide_kernel
from gnbook.deep_nonlinear.width import (
    bernstein_width,
    chernoff_width,
    hidden_layer_kernel,
    smallest_shares,
    unit_spread,
)
from hypothesis import given
from hypothesis import strategies as st

import gnlib
from tests.gnbook.deep_nonlinear.chains import on_a_sphere
from tests.oracles import ends
from tests.strategies import exact, gaussian, instances, samples, seeds

ASKED = {"shortfall": 0.5, "failure": 0.01}
SLACK = 1 + 1e-9


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(kind, n=100):
    x, _ = gnlib.load("mnist", n)
    return gnlib.whiten(x) if kind == "white" else x


def exponent(shortfall):
    return shortfall + (1 - shortfall) * math.log1p(-shortfall)


@pytest.mark.claim("The mean of a unit", verdict="holds")
@instances
@given(st.integers(2, 4).flatmap(samples))
def test_a_unit_and_its_mean_lie_between_multiples_of_the_gram_matrix(x):
    x = x[x.norm(dim=1) > 0]
    if len(x) == 0:
        return
    gram, mean = x @ x.mT, hidden_layer_kernel(x)
    top = ends(gram)[1]
    assert ends(mean - gram / 4)[0] >= -1e-12 * top
    assert top / 4 <= ends(mean)[1] * SLACK and ends(mean)[1] <= top / 2 * SLACK
    for active in gaussian(0, 5, x.shape[1]) @ x.mT > 0:
        unit = active[:, None] * gram * active
        assert ends(unit)[0] >= -1e-12 * top and ends(unit)[1] <= top * SLACK


@pytest.mark.claim("Width by Chernoff", verdict="holds")
@instances
@given(st.integers(1, 4), st.integers(1, 6), st.floats(0.05, 0.95), seeds)
def test_the_probability_is_bounded_where_it_is_known(n, tens, shortfall, seed):
    """Orthogonal samples of different norms: the smallest entry of a diagonal matrix of counts."""
    sizes = gaussian(seed, n).exp()
    units, least, most = 10 * tens, sizes.min().item(), sizes.max().item()
    needed = [(1 - shortfall) * least * units / 2 / size for size in sizes.tolist()]
    none = math.prod(scipy.stats.binom.sf(math.floor(count + 1e-12), units, 0.5) for count in needed)
    bound = n * math.exp(-exponent(shortfall) * units * least / 2 / most)
    assert 1 - none <= bound * SLACK and bound <= n * math.exp(-(shortfall**2) / 2 * units * least / 2 / most) * SLACK


@pytest.mark.claim("Width by Bernstein", verdict="holds")
@pytest.mark.parametrize("kind", ["white", "raw", "sphere"])
def test_the_spread_is_at_most_the_inverse_share_and_networks_keep_half_of_every_eigenvalue(kind):
    x = on_a_sphere(30, 12) if kind == "sphere" else images(kind, 60)
    share = ends(hidden_layer_kernel(x))[0] / torch.linalg.matrix_norm(x, 2).item() ** 2
    spread = unit_spread(x, 2000, generator=generator())
    assert 1 <= spread <= 1.1 / share
    if kind == "white":
        assert spread == pytest.approx(2.0, rel=0.1)
        units = bernstein_width(len(x), spread, **ASKED)
        first, second = smallest_shares(x, units, 200, generator=generator(1))
        assert (second > 0.5).double().mean() >= 0.99 and (first >= second / SLACK).all()


@pytest.mark.claim("White samples, exactly", verdict="holds")
def test_orthogonal_samples_are_independent_coins_and_half_of_the_units_that_are_asked_for_are_needed():
    def failure(units, n):
        """The probability that one of n orthogonal samples has half of the expected active units, or fewer."""
        return -math.expm1(n * scipy.stats.binom.logsf(math.floor(units / 4), units, 0.5))

    first, second = smallest_shares(3 * torch.eye(5).double(), 20, 4000, generator=generator())
    torch.testing.assert_close(first, second)
    assert (first <= 0.5).double().mean().item() == pytest.approx(failure(20, 5), abs=0.02)
    assert max(units for units in range(1, 300) if failure(units, 200) > 0.01) == 60
    asked, spread = chernoff_width(torch.eye(200), **ASKED), math.log(200 / 0.01)
    assert asked == 130 and (asked - 1) * exponent(0.5) / 2 < spread <= asked * exponent(0.5) / 2
    assert bernstein_width(200, 2.0, **ASKED) == 159 and 158 < 16 * spread <= 159


@pytest.mark.claim("Whitening, in units of width", verdict="fails")
def test_raw_images_need_a_few_times_the_units_of_white_ones_not_a_thousand_times():
    asked, needed = {}, {}
    for kind in ("white", "raw"):
        x = images(kind)
        asked[kind] = chernoff_width(x, **ASKED)
        of_units = ((units, smallest_shares(x, units, 60, generator=generator())[0]) for units in (30, 60, 120, 240))
        needed[kind] = next(units for units, first in of_units if (first <= 0.5).double().mean() <= 0.05)
    assert asked["white"] == 121 and asked["raw"] > 500 * asked["white"]
    assert needed["raw"] <= 4 * needed["white"]


def kernel(x):
    return wide_kernel(x, leaky_relu(0.0), (1, 1), gain=2**0.5)


def powers(x, degrees):
    """Weights of the powers of the correlations in the kernel, and these powers.

    By the squares of the Hermite coefficients of the ReLU: 1 / (2 pi), 1 / 4, and ((k - 3)!!)^2 / (2 pi k!) for even k.
    """
    squares, even = [1 / (2 * math.pi), 1 / 4], 1 / (4 * math.pi)
    for k in range(2, degrees):
        squares.append(0.0 if k % 2 else even)
        even *= 1.0 if k % 2 else (k - 1) ** 2 / ((k + 1) * (k + 2))  # from degree k to k + 2
    degree = torch.arange(degrees, dtype=torch.float64)
    correlations = (x @ x.mT / x.shape[1]).fill_diagonal_(1.0)
    return 4 * exact(squares[:degrees]) * (1 + degree), correlations ** degree[:, None, None]


@pytest.mark.claim("Powers of the correlations", verdict="holds")
@instances
@given(seeds, st.integers(1, 12), st.integers(1, 6), st.integers(1, 60))
def test_the_kernel_is_the_series_of_powers_and_not_below_its_floors(seed, n, d, degrees):
    x = on_a_sphere(n, d, seed)
    weights, correlations = powers(x, 4000)
    tail = 4 - float(weights.sum())  # on the diagonal; elsewhere no more
    assert (((weights[:, None, None] * correlations).sum(0) - kernel(x)).abs() <= tail + 1e-9).all() and tail < 0.08
    floors = []
    for count in (degrees, degrees + 5):  # more degrees say more
        weights, correlations = powers(x, count)
        weights[-1] = 4 - weights[:-1].sum()  # the last is for all higher ones too
        floors.append(weights @ torch.linalg.eigvalsh(correlations)[:, 0].clamp_min(0.0))
    assert (weights >= 0).all() and floors[0] - 1e-9 <= floors[1] <= ends(kernel(x))[0] + 1e-9


@pytest.mark.claim("Close samples", verdict="holds")
@pytest.mark.parametrize("theta", [1e-3, 1e-2, 1e-1, 1.0, 1.97, 1.98, 2.5, 3.1])
def test_two_samples(theta):
    x = exact([[1.0, 0.0], [math.cos(theta), math.sin(theta)]])
    between = (math.sin(theta) + 2 * (math.pi - theta) * math.cos(theta)) / math.pi
    assert (between > 0) == (theta < 1.976)
    assert ends(kernel(x))[0] == pytest.approx(2 - abs(between), abs=1e-7)  # the root of rounding, as an angle of zero
    if theta <= 0.1:
        assert (2 - abs(between)) / theta == pytest.approx(1 / math.pi, abs=1.1 * theta)

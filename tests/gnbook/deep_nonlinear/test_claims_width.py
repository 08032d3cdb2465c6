"""One hidden layer of ReLUs: how wide it must be for a kernel as regular as that of infinite width."""

import math

import pytest
import scipy
import torch
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
from tests.strategies import gaussian, instances, samples, seeds

ASKED = {"shortfall": 0.5, "failure": 0.01}
SLACK = 1 + 1e-9


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(kind, n=100):
    x, _ = gnlib.load("mnist", n)
    return gnlib.whiten(x) if kind == "white" else x


def ends(matrix):
    values = torch.linalg.eigvalsh(matrix)
    return values[0].item(), values[-1].item()


def exponent(shortfall):
    return shortfall + (1 - shortfall) * math.log1p(-shortfall)


def exact_failure(units, n, shortfall):
    """The probability that one of n orthogonal samples has too few active units, which are independent coins."""
    return -math.expm1(n * scipy.stats.binom.logsf(math.floor((1 - shortfall) * units / 2), units, 0.5))


@pytest.mark.claim("The mean of a unit", verdict="holds")
@instances
@given(st.integers(2, 4).flatmap(samples))
def test_a_unit_and_its_mean_lie_between_multiples_of_the_gram_matrix(x):
    x = x[(x.norm(dim=1) > 0) & (x.norm(dim=1) < math.inf)]
    if len(x) == 0:
        return
    gram, mean = x @ x.mT, hidden_layer_kernel(x)
    top = ends(gram)[1]
    assert ends(mean - gram / 4)[0] >= -1e-12 * top
    assert top / 4 <= ends(mean)[1] * SLACK and ends(mean)[1] <= top / 2 * SLACK
    for active in gaussian(0, 5, x.shape[1]) @ x.mT > 0:
        unit = active[:, None] * gram * active
        assert ends(unit)[0] >= -1e-12 * top and ends(unit)[1] <= top * SLACK


@pytest.mark.claim("The mean of a unit", verdict="holds")
def test_samples_of_which_no_two_are_parallel_make_the_mean_regular():
    x = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 1.01], [-1.0, 3.0]]).double()
    assert ends(hidden_layer_kernel(x))[0] > 1e-6
    assert ends(hidden_layer_kernel(torch.cat([x, -x[:1]])))[0] > 1e-6  # one opposite does no harm here
    assert abs(ends(hidden_layer_kernel(torch.cat([x, 2 * x[2:3]])))[0]) < 1e-7


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
def test_two_hundred_networks_keep_half_of_every_eigenvalue():
    x = images("white", 30)
    spread = unit_spread(x, 1000, generator=generator())
    units = bernstein_width(30, spread, **ASKED)
    first, second = smallest_shares(x, units, 200, generator=generator(1))
    assert (second > 0.5).double().mean() >= 0.99 and (first >= second / SLACK).all()


@pytest.mark.claim("White samples, exactly", verdict="holds")
def test_orthogonal_samples_are_independent_coins():
    x, units = 3 * torch.eye(5).double(), 20
    first, second = smallest_shares(x, units, 4000, generator=generator())
    assert torch.allclose(first, second)
    found = (first <= 0.5).double().mean().item()
    assert found == pytest.approx(exact_failure(units, 5, 0.5), abs=0.02)


@pytest.mark.claim("White samples, exactly", verdict="holds")
def test_of_the_units_that_are_asked_for_half_are_needed():
    failures = [exact_failure(units, 200, 0.5) for units in range(1, 300)]
    needed = 2 + max(index for index, failure in enumerate(failures) if failure > 0.01)
    assert needed == 61
    asked, spread = chernoff_width(torch.eye(200), **ASKED), math.log(200 / 0.01)
    assert asked == 130 and (asked - 1) * exponent(0.5) / 2 < spread <= asked * exponent(0.5) / 2
    assert bernstein_width(200, 2.0, **ASKED) == 159 and 158 < 16 * spread <= 159


@pytest.mark.claim("Whitening, in units of width", verdict="fails")
def test_raw_images_need_a_few_times_the_units_of_white_ones_not_a_thousand_times():
    asked, needed = {}, {}
    for kind in ("white", "raw"):
        x = images(kind)
        asked[kind] = chernoff_width(x, **ASKED)
        for units in (30, 60, 120, 240):
            first, _ = smallest_shares(x, units, 60, generator=generator())
            if (first <= 0.5).double().mean() <= 0.05:
                needed[kind] = units
                break
    assert asked["white"] == 121 and asked["raw"] > 500 * asked["white"]
    assert needed["raw"] <= 4 * needed["white"]

"""Random matrices, and the law of Tracy and Widom."""

import math

import mpmath
import numpy as np
import pytest
import scipy
import torch
from gnbook.random_layers import bounds as layers
from gnbook.random_layers import matrices as rm

from tests.gnbook.random_layers.cases import exact, generator

# Johnstone (2001), table 1, to two digits; of the tails that tests use, tables give four.
QUANTILES = [
    *((p, s, 2) for p, s in ((0.01, -3.90), (0.05, -3.18), (0.1, -2.78), (0.3, -1.91), (0.5, -1.27), (0.7, -0.59))),
    *((p, s, 2) for p, s in ((0.9, 0.45), (0.95, 0.98), (0.99, 2.02))),
    *((p, s, 4) for p, s in ((0.9, 0.4501), (0.95, 0.9793), (0.99, 2.0234))),
]
# Bornemann (2010): mean, variance, skewness, excess kurtosis.
MOMENTS = (-1.2065335745820, 1.607781034581, 0.29346452408, 0.1652429384)


@pytest.mark.parametrize("probability, s, digits", QUANTILES)
def test_published_quantiles_of_tracy_and_widom(probability, s, digits):
    half = 0.5 * 10**-digits
    assert rm.tracy_widom_cdf(s - half) <= probability <= rm.tracy_widom_cdf(s + half)


def test_published_moments_of_tracy_and_widom():
    s, step = np.linspace(-10, 12, 1101, retstep=True)  # the trapezoidal rule is exact for what vanishes at both ends
    density = rm.tracy_widom_pdf(s) * step
    mean = (s * density).sum()
    central = [((s - mean) ** k * density).sum() for k in (0, 2, 3, 4)]
    ours = (mean, central[1], central[2] / central[1] ** 1.5, central[3] / central[1] ** 2 - 3)
    assert central[0] == pytest.approx(1, abs=1e-12)
    assert ours == pytest.approx(MOMENTS, abs=1e-9)


def test_the_distribution_function_solves_painleve_ii():
    """F_1(s) = exp(-(u + v) / 2) with u'' = q^2, v' = -q and q'' = s q + 2 q^3, q like Ai at infinity."""
    start = 6.0
    ai = scipy.special.airy(start)
    moments = [
        scipy.integrate.quad(lambda x, k=k: (x - start) ** k * scipy.special.airy(x)[0] ** 2, start, 20)[0]
        for k in (1, 0)
    ]
    initial = [ai[0], ai[1], *moments, scipy.integrate.quad(lambda x: scipy.special.airy(x)[0], start, 20)[0]]

    def painleve(s, y):
        q, slope, _, inner, _ = y
        return [slope, s * q + 2 * q**3, -inner, -q * q, -q]

    points = np.arange(2, -6, -1.0)
    solution = scipy.integrate.solve_ivp(painleve, (start, -5), initial, "DOP853", points, rtol=1e-12, atol=1e-16)
    _, _, u, _, v = solution.y
    assert rm.tracy_widom_cdf(points) == pytest.approx(np.exp(-(u + v) / 2), abs=1e-9)


def test_the_distribution_function_to_thirteen_digits():
    """The same determinant, with mpmath's Airy function and quadrature nodes of thirty digits."""
    with mpmath.workdps(30):
        nodes, size = np.polynomial.legendre.leggauss(40)[0], 40
        polynomial = mpmath.taylor(lambda x: mpmath.legendre(size, x), 0, size)[::-1]
        nodes = [mpmath.findroot(lambda x: mpmath.polyval(polynomial, x), x) for x in nodes]
        weights = [2 * (1 - x**2) / ((size + 1) * mpmath.legendre(size + 1, x)) ** 2 for x in nodes]
        for s in (-5.0, 0.5):
            length = 14 - mpmath.mpf(s)
            t = [length * (x + 1) / 2 for x in nodes]
            kernel = {x + y: mpmath.airyai(x + y + s) for i, x in enumerate(t) for y in t[: i + 1]}
            pairs = list(zip(t, weights, strict=True))
            rows = [[length / 2 * b * kernel[x + y if x + y in kernel else y + x] for y, b in pairs] for x in t]
            reference = mpmath.det(mpmath.eye(size) - mpmath.matrix(rows))
            assert float(abs(reference - float(rm.tracy_widom_cdf(s)))) < 1e-13


def test_the_density_is_the_derivative_and_both_end_well():
    s, step = np.linspace(-6, 6, 49), 1e-4
    difference = (rm.tracy_widom_cdf(s + step) - rm.tracy_widom_cdf(s - step)) / (2 * step)
    assert rm.tracy_widom_pdf(s) == pytest.approx(difference, abs=1e-8)
    for value, expected in ((-50.0, 0), (-np.inf, 0), (50.0, 1), (np.inf, 1)):
        assert rm.tracy_widom_cdf(value) == pytest.approx(expected, abs=1e-13)
        assert rm.tracy_widom_pdf(value) == pytest.approx(0, abs=1e-13)
    assert rm.tracy_widom_cdf(np.zeros((2, 3))).shape == (2, 3)


@pytest.mark.parametrize("law", rm.LAWS)
def test_entries_have_mean_zero_variance_one_and_their_law(law):
    entries = rm.draw(40, 100, law, generator=generator())
    fourth = 3 if law == "gaussian" else 9 / 5
    assert entries.shape == (100, 40, 40) and entries.dtype == torch.float64
    assert [entries.mean(), entries.square().mean(), (entries**4).mean()] == pytest.approx([0, 1, fourth], abs=0.05)
    assert (entries.abs().max() <= math.sqrt(3)) == (law == "uniform")
    assert torch.equal(entries, rm.draw(40, 100, law, generator=generator()))


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (7, 4, 4), (2, 3, 5, 5)])
def test_extremes_are_those_of_each_matrix(shape):
    matrices = torch.randn(shape, generator=generator(3), dtype=torch.float64)
    found = rm.extremes(matrices)
    for index in np.ndindex(shape[:-2]):
        one = matrices[index]
        squares = torch.linalg.eigvalsh(one.mT @ one).clamp_min(0).sqrt()
        tau = np.linalg.eigvalsh((one + one.mT).numpy())
        expected = [squares[-1], squares[0], tau[-1], tau[0]]
        assert [value[index].item() for value in found] == pytest.approx([float(e) for e in expected], abs=1e-7)
    assert all(value.shape == shape[:-2] for value in found)


def test_extremes_of_a_number_of_zero_and_of_multiples():
    assert [value.item() for value in rm.extremes(exact([[-3]]))] == [3, 3, -6, -6]
    assert all((value == 0).all() for value in rm.extremes(torch.zeros(2, 3, 3)))
    matrix = rm.draw(4, 1, generator=generator())[0]
    for factor in (0.0, 0.3, 2.0):
        direct, scaled = rm.extremes(factor * matrix), rm.extremes(matrix).times(factor)
        assert [v.item() for v in scaled] == pytest.approx([v.item() for v in direct], abs=1e-12)
    assert rm.extremes(matrix.float()).largest.dtype == torch.float64


def test_scalings_in_closed_form_and_against_the_edge():
    assert rm.symmetric_scaling(2) == pytest.approx((4, math.sqrt(2) / 2 ** (1 / 6)))
    assert rm.singular_scaling(2) == pytest.approx(((1 + 2**0.5) ** 2, (1 + 2**0.5) * (1 + 2**-0.5) ** (1 / 3)))
    assert rm.marchenko_pastur_edges(1.0) == (0, 4)
    for ratio in (0.25, 0.5, 2.0):
        k = torch.randn(1500, int(1500 * ratio), generator=generator(), dtype=torch.float64)
        values = torch.linalg.svdvals(k) ** 2 / 1500
        assert [values[-1].item(), values[0].item()] == pytest.approx(rm.marchenko_pastur_edges(ratio), rel=0.06)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda: rm.extremes(torch.zeros(2, 3)), r"matrices has shape \(2, 3\); square matrices"),
        (lambda: rm.extremes(torch.zeros(3)), r"matrices has shape \(3,\); square matrices"),
        (lambda: rm.extremes(torch.zeros(0, 3, 3)), r"matrices is empty \(shape \(0, 3, 3\)\)"),
        (lambda: rm.extremes(torch.full((1, 1), torch.nan)), "matrices has 1 entries that are NaN"),
        (lambda: rm.extremes([[1.0]]), "matrices is a list; pass a torch tensor"),
        (lambda: rm.extremes(torch.eye(2)).times(-1.0), "factor is -1.0; a finite number from 0 on"),
        (lambda: rm.draw(0, 1, generator=generator()), "n is 0 and count is 1; both take whole numbers from 1 on"),
        (lambda: rm.draw(1, 0, generator=generator()), "count is 0"),
        (lambda: rm.draw(1, 1, "cauchy", generator=generator()), "law is 'cauchy'; one of 'gaussian', 'uniform'"),
        (lambda: rm.symmetric_scaling(0), "n is 0; a size from 1 on"),
        (lambda: rm.singular_scaling(1), "n is 1; the scale is infinite for one number"),
        (lambda: rm.marchenko_pastur_edges(0.0), "ratio is 0.0; the number of columns over that of rows"),
        (lambda: rm.tracy_widom_cdf(np.nan), "s has entries that are NaN"),
        (lambda: rm.tracy_widom_pdf([0.0, np.nan]), "s has entries that are NaN"),
        (lambda: layers.all_regions(torch.zeros(2, 3)), r"shape \(2, 3\); square matrices"),
        (lambda: layers.all_regions(torch.zeros(5, 2, 2)), r"weight has shape \(5, 2, 2\); one square matrix"),
        (lambda: layers.all_regions(torch.eye(2), 1.5), r"slope is 1.5; a number from -1"),
        (lambda: layers.all_regions(torch.eye(2), -1.01), r"slope is -1.01; a number from -1"),
        (lambda: layers.all_regions(torch.eye(2), math.nan), "slope is nan"),
        (lambda: layers.all_regions_limit(2.0, -1.5), r"slope is -1.5; a number from -1"),
        (lambda: layers.all_regions_of_branch(torch.eye(2), torch.eye(2), 2.0), r"slope is 2.0; a number from -1"),
        (
            lambda: layers.all_regions_of_branch(torch.ones(3, 2), torch.ones(3, 2)),
            r"shapes \(3, 2\) and \(3, 2\); \(m, n\) and \(n, m\) were expected",
        ),
        (lambda: layers.all_regions_of_branch(torch.ones(2), torch.ones(2)), r"shapes \(2,\) and \(2,\)"),
        (lambda: layers.all_regions_of_branch(torch.ones(1, 1), torch.ones(1, 0)), "outer is empty"),
        (lambda: layers.riedi_theorem_38(0.0), "r is 0.0; a finite number above 0"),
        (lambda: layers.skip_condition_limit(-1.0), "r is -1.0; a finite number above 0"),
        (lambda: layers.all_regions_limit(math.inf), "r is inf; a finite number above 0"),
        (
            lambda: layers.riedi_theorem_39(10, 10, 0, 99, 5),
            "10 units of the trained layer and 0 of the residual layer",
        ),
        (lambda: layers.riedi_theorem_39(10, 0, 0, 99, 5), "at least one in all"),
        (lambda: layers.riedi_theorem_39(10, 1, 0, 99, 4), r"theta is 4; above 4 and at most 2 sqrt\(n\) = 6.325"),
        (lambda: layers.riedi_theorem_39(4, 1, 0, 99, 4.1), "which takes n from 5 on"),
        (lambda: layers.riedi_theorem_39(10, 1, 0, 9, 5), "r is 9; it has to be above 9 for this n"),
        (lambda: layers.riedi_corollary_40(10, 27, 5), "r is 27; it has to be above 27"),
        (lambda: layers.riedi_corollary_40(10, math.nan, 5), "r is nan; a finite number above 0"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(call, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        call()

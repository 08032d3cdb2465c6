"""Random matrices, and the law of Tracy and Widom."""

import math

import numpy as np
import pytest
import torch
from gnbook.random_layers import matrices as rm

from tests.gnbook.random_layers.helpers import generator
from tests.strategies import exact

# Bornemann (2010): mean, variance, skewness, excess kurtosis.
MOMENTS = (-1.2065335745820, 1.607781034581, 0.29346452408, 0.1652429384)


def test_published_moments_of_tracy_and_widom():
    s, step = np.linspace(-10, 12, 441, retstep=True)  # the trapezoidal rule is exact for what vanishes at both ends
    density = rm.tracy_widom_pdf(s) * step
    mean = (s * density).sum()
    central = [((s - mean) ** k * density).sum() for k in (0, 2, 3, 4)]
    ours = (mean, central[1], central[2] / central[1] ** 1.5, central[3] / central[1] ** 2 - 3)
    assert central[0] == pytest.approx(1, abs=1e-12)
    assert ours == pytest.approx(MOMENTS, abs=1e-9)


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


def test_scalings_in_closed_form():
    assert rm.symmetric_scaling(2) == pytest.approx((4, math.sqrt(2) / 2 ** (1 / 6)))
    assert rm.singular_scaling(2) == pytest.approx(((1 + 2**0.5) ** 2, (1 + 2**0.5) * (1 + 2**-0.5) ** (1 / 3)))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "call, sentence",
    [
        (lambda: rm.extremes(torch.zeros(1, 3)), r"matrices has shape \(1, 3\); square matrices"),
        (lambda: rm.extremes(torch.eye(2)).times(-1.0), "factor is -1.0; a finite number from 0 on"),
        (lambda: rm.draw(1, 1, "cauchy", generator=generator()), "law is 'cauchy'; one of 'gaussian', 'uniform'"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()

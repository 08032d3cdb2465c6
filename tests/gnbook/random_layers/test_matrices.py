"""Random matrices, and the law of Tracy and Widom."""

import math

import numpy as np
import pytest
import torch
from gnbook.random_layers import matrices as rm

from tests.gnbook.random_layers.helpers import generator

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


def test_scalings_in_closed_form():
    assert rm.symmetric_scaling(2) == pytest.approx((4, math.sqrt(2) / 2 ** (1 / 6)))
    assert rm.singular_scaling(2) == pytest.approx(((1 + 2**0.5) ** 2, (1 + 2**0.5) * (1 + 2**-0.5) ** (1 / 3)))

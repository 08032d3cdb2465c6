"""Riedi 2022, section 6.3, statements 41 and 42: random layers with the skip and without."""

import numpy as np
import pytest
from gnbook.random_layers import matrices as rm
from hypothesis import given

from tests.gnbook.random_layers.helpers import (
    condition,
    distance,
    draw,
    eye,
    noise,
    random_layers,
    region,
    scales,
    squares_of_any_kind,
)
from tests.strategies import gaussian, instances, orthogonal, seeds


@pytest.mark.claim("Riedi Lemma 41", verdict="holds")
@pytest.mark.parametrize("law", rm.LAWS)
def test_without_a_skip_the_condition_number_outgrows_the_bound(law):
    for r, least in ((1.1, 0.95), (2.0, 0.999)):
        shares = []
        for n, count in ((5, 3000), (40, 1000)):
            layer = rm.extremes(random_layers(n, count, r, law))
            ceiling = (1 + layer.largest) / (1 - layer.largest)
            shares.append(((layer.largest < 1) & (layer.largest / layer.smallest >= ceiling)).double().mean().item())
        assert shares[1] >= max(least, shares[0])


@pytest.mark.claim("Riedi Eq. 154", verdict="holds")
def test_the_law_of_the_condition_number_without_a_skip():
    def cdf(t):
        return np.exp(-2 / t - 2 / t**2)

    t = np.linspace(0.3, 50, 200)
    density = (2 * t + 4) / t**3 * cdf(t)
    assert (cdf(t + 1e-5) - cdf(t - 1e-5)) / 2e-5 == pytest.approx(density, abs=1e-8)
    count = 1000
    ratio = (condition(draw(60, count)) / 60).numpy()
    assert distance(ratio, cdf) < 0.02 + noise(count)
    assert distance(2 * ratio, cdf) > 0.1


@pytest.mark.claim("Riedi Theorem 42", verdict="holds")
@instances
@given(squares_of_any_kind, scales, seeds)
def test_where_it_does_the_skip_improves_the_condition_number(weight, scale, seed):
    n = len(weight)
    weight, signs = scale * weight, gaussian(seed, 2, n).sign()
    layer = rm.extremes(weight)
    without, with_skip = condition(signs[0][:, None] * weight * signs[1]), condition(region(weight, *signs))
    assert (
        with_skip == pytest.approx(condition(signs[0][:, None] * weight + eye(n)).item(), rel=1e-6) or with_skip > 1e6
    )
    if layer.largest < 1 and without >= (1 + layer.largest) / (1 - layer.largest):
        assert without >= with_skip * (1 - 1e-9)


@pytest.mark.claim("Riedi Theorem 42", verdict="holds")
def test_without_eq_152_a_skip_can_hurt():
    weight = 0.5 * orthogonal(0, 4)
    assert condition(weight) < 1 + 1e-9 and condition(weight + eye(4)) > 1.1

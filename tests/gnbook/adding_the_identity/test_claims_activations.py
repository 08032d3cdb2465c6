"""Riedi 2022, section 5, statements 23 to 26: singular values under an activation."""

import itertools

import pytest

from tests.gnbook.adding_the_identity.helpers import ROUNDING, activated, masks, singular, thousand
from tests.strategies import gaussian


@pytest.mark.claim("Riedi Proposition 23", verdict="holds")
@thousand
def test_an_absolute_value_changes_no_singular_value(matrices):
    s = singular(matrices)
    for d in masks(matrices.shape[-1], -1.0):
        for product in (matrices * d, matrices * d[:, None]):
            assert ((singular(product) - s).abs() <= ROUNDING * (s[:, :1] + 1e-300)).all()


@pytest.mark.claim("Riedi Lemma 24", verdict="holds")
@pytest.mark.claim("Riedi, leaky ReLU for i = 1 only", verdict="fails")
@thousand
@pytest.mark.parametrize("slope", [0.0, 0.01, 0.99, -0.3])
def test_a_relu_leaky_or_not_increases_no_singular_value(matrices, slope):
    s = singular(matrices)
    for d in masks(matrices.shape[-1], slope):
        for product in (matrices * d, matrices * d[:, None]):
            assert (singular(product) <= s + ROUNDING * s[:, :1]).all()


@pytest.mark.claim("Any activation", verdict="holds")
@thousand
@pytest.mark.parametrize("slope", [0.0, 0.01, 0.7, -0.3, -1.0, 2.0])
def test_singular_values_and_their_quotient_are_within_the_products_with_the_slopes(matrices, slope):
    for m, d in zip(matrices[::4], itertools.cycle(masks(matrices.shape[-1], slope)), strict=False):
        s, scale = singular(m), max(1, abs(slope))
        lower, upper = activated(s, d)
        slack = ROUNDING * scale * s[0]
        for product in (m * d, m * d[:, None]):
            moved = singular(product)
            assert (lower <= moved + slack).all() and (moved <= upper + slack).all()
            assert (d.abs().min() * s <= moved + slack).all() and (moved <= d.abs().max() * s + slack).all()
            kept = d[d != 0].abs()
            if len(kept) and s[-1] > 1e-6 * s[0]:
                kappa = moved[0] / moved[len(kept) - 1]
                assert 0 < kappa <= s[0] / s[-1] * kept.max() / kept.min() * (1 + 1e-9)


@pytest.mark.claim("Riedi Proposition 25", verdict="holds")
@thousand
@pytest.mark.parametrize("slope", [0.0, 0.4, -1.0])
def test_squared_singular_values_fall_by_the_squares_of_the_columns_switched_off(matrices, slope):
    s = singular(matrices)
    for d in masks(matrices.shape[-1], slope):
        moved, columns = singular(matrices * d), (matrices[..., d != 1] ** 2).sum((1, 2))
        slack = ROUNDING * (s**2).sum(1) * 10
        lost = (1 - slope**2) * columns
        assert (((s**2).sum(1) - (moved**2).sum(1) - lost).abs() <= slack).all()
        assert (((s**2 - moved**2).abs().sum(1) - lost).abs() <= slack).all()
        assert (((s - moved) ** 2).sum(1) <= (1 - slope) ** 2 * columns + slack).all()


@pytest.mark.claim("Riedi Proposition 26", verdict="holds")
@thousand
def test_an_activation_before_is_one_after_the_transpose(matrices):
    d = gaussian(99, matrices.shape[-1])
    before, after = singular(matrices * d), singular(d[:, None] * matrices.mT)
    assert ((before - after).abs() <= ROUNDING * (before[:, :1] + 1e-300)).all()

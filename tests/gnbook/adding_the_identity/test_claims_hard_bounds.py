"""Riedi 2022, sections 5 and 6.1: singular values under an activation, and bounds that hold for all small weights."""

import itertools
import math

import pytest
import torch
from gnbook.adding_the_identity.bounds import hard_bound, riedi_lemma_29, riedi_theorem_31, riedi_theorem_32

from tests.gnbook.adding_the_identity.helpers import ROUNDING, instances, masks, thousand
from tests.oracles import identity, singular
from tests.strategies import exact, gaussian


def products(n, entry, depth):
    """Return 400 products of layers with entries up to `entry` and slopes up to 1, some with all weights extreme."""
    matrices = torch.cat([instances(n), gaussian(n, 200, n, n).sign()])
    layers = matrices / matrices.abs().amax((1, 2), keepdim=True).clamp_min(1e-300) * entry
    product = layers
    for level in range(1, depth):
        slopes = gaussian(level, 400, 1, n).clamp(-1, 1)
        product = layers.roll(37 * level, 0) @ (slopes.mT * product)
    return product


def condition(matrix, kept):
    """Return the condition number of a batch, given how many singular values are not zero."""
    s = singular(matrix)
    assert (s[..., kept - 1] > 0).all()
    return s[..., 0] / s[..., kept - 1]


ENTRIES = [0.0, 0.1, 0.5, 0.9, 0.999]  # as parts of 1/n


@pytest.mark.claim("Riedi Lemma 27", "Riedi Lemma 28", "Riedi Lemma 29", "Riedi Theorem 30", verdict="holds")
@pytest.mark.parametrize("n", range(1, 6))
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_products_have_no_larger_entries_nor_norms_and_with_a_skip_singular_values_stay_around_one(n, depth):
    for part in (*ENTRIES, 1.0):
        entry, product = part / n, products(n, part / n, depth)
        largest = product.abs().amax((1, 2))
        assert largest.max() <= entry * part ** (depth - 1) * (1 + ROUNDING) <= entry * (1 + ROUNDING)
        assert (singular(product)[:, 0] <= n * largest * (1 + ROUNDING)).all()  # n times for a matrix of ones
        assert singular(torch.full((n, n), entry, dtype=torch.float64))[0].item() == pytest.approx(n * entry)
        for d in masks(n, -1.0) if part < 1 else []:  # an absolute value leaves the bound
            (lower, upper), s = riedi_lemma_29(entry, n), singular((product + identity(n)) * d)
            assert 0 < lower and upper < 2
            assert (lower <= s[:, -1] + ROUNDING).all() and (s[:, 0] <= upper + ROUNDING).all()
            assert (s[:, 0] / s[:, -1] <= upper / lower * (1 + 1e-9)).all()


@pytest.mark.claim("Riedi Theorem 31, Eq. 89", "Riedi Theorem 31, Eq. 90", verdict="holds if")
@pytest.mark.claim("Riedi Theorem 31, Eq. 91", verdict="holds if")
@pytest.mark.claim("Riedi Theorem 32, Eq. 100", "Riedi Theorem 32, Eq. 101", "Hard bound, any slope", verdict="holds")
@pytest.mark.parametrize("n", range(1, 8))
@pytest.mark.parametrize("slope", [-1.0, -0.4, 0.0, 0.05, 0.7, 0.99, 1.0])
def test_the_hard_bound_for_any_slope_and_depth_is_below_the_bounds_of_both_theorems(n, slope):
    finite, fewest = [0] * 5, 0 if slope == 0 else 1
    for part, m in itertools.product((*ENTRIES, 0.02, 0.3 / (1 + n)), range(n + (slope != 0))):
        d = torch.ones(n, dtype=torch.float64)
        d[:m] = slope
        for depth in (1, 2, 3):
            kappa = condition((products(n, part / n, depth) + identity(n)) * d, n if slope else n - m)
            assert (kappa <= hard_bound(part / n, n, m, slope, depth) * (1 + 1e-9)).all()
        if slope < 0:  # which the theorems are not about
            continue
        top, low, linear = 1 + part, 1 - part, (1 - slope) * m * (3 * part / n + 1)
        found = riedi_theorem_32(part / n, n, m, slope)
        bottoms = [(low**2 - 4 * (1 - slope) * m**0.5, 0.5), (low - linear, 1)]
        if slope == 0:
            found += riedi_theorem_31(part / n, n, m)
            bottoms += [(1 - 2 * part * (1 + n), 0.5), (low - math.sqrt(m / n), 1), (1 - 2 * part * (1 + 2 * m), 0.5)]
        assert found == pytest.approx([top / x**p if x > 0 else math.inf for x, p in bottoms], rel=1e-9)
        assert hard_bound(part / n, n, m, slope) <= min(found) * (1 + ROUNDING)
        finite = [count + (bound < math.inf and m >= fewest) for count, bound in zip(finite, found, strict=False)]
    assert min(finite) > 0 or (slope < 0.99 and slope != 0)


@pytest.mark.claim("Hard bound, any slope", verdict="holds")
@pytest.mark.claim("Riedi Theorem 31, Eq. 89", "Riedi Theorem 31, Eq. 91", verdict="holds if")
def test_it_is_attained_by_nine_weights_of_one_size_and_with_no_unit_active_nothing_is_left():
    signs = exact([[-1, -1, 1], [-1, -1, 1], [1, 1, 1]])
    kappa = condition(signs / 9 + identity(3), 3).item()
    assert kappa == pytest.approx(hard_bound(1 / 9, 3), rel=1e-12)
    assert kappa < 0.9 * (1 + 1 / 3) / (1 - 1 / 3)
    c, n = 0.01, 1
    assert 2 * c * n < 1 / (1 + 2 * n) < 1 / (1 + n)
    assert singular((exact([[c]]) + identity(n)) * exact([0])).tolist() == [0]


def activated(s, d):
    """Bounds of the singular values of M D and D M: s_{i+j-n}(M D) >= s_i(M) d_j and s_{i+j-1}(M D) <= s_i(M) d_j."""
    d = d.abs().sort(-1, descending=True).values
    places = range(s.shape[-1])
    upper = torch.stack([(s[..., : q + 1] * d[..., : q + 1].flip(-1)).amin(-1) for q in places], -1)
    return torch.stack([(s[..., q:] * d[..., q:].flip(-1)).amax(-1) for q in places], -1), upper


@pytest.mark.claim("Riedi Proposition 23", "Riedi Lemma 24", "Any activation", "Riedi Proposition 25", verdict="holds")
@pytest.mark.claim("Riedi Proposition 26", verdict="holds")
@pytest.mark.claim("Riedi, leaky ReLU for i = 1 only", "Riedi, absolute value against ReLU", verdict="fails")
@thousand
@pytest.mark.parametrize("slope", [0.0, 0.01, 0.4, 0.7, 0.99, -0.3, -1.0, 2.0])
def test_an_activation_moves_singular_values_between_the_products_with_the_slopes(matrices, slope):
    s, scale = singular(matrices), max(1, abs(slope))  # up to a slope of one none grows; at minus one none changes
    regular, slack = s[:, -1] > 1e-6 * s[:, 0], ROUNDING * scale * s[:, :1] + 1e-300
    for d in masks(matrices.shape[-1], slope):
        lower, upper = activated(s, d)
        moved, before = singular(matrices * d), singular(matrices * d[:, None])
        assert ((singular(d[:, None] * matrices.mT) - moved).abs() <= slack).all()  # before, or after the transpose
        kept = d[d != 0].abs()
        for found in (moved, before):
            assert (lower <= found + slack).all() and (found <= upper + slack).all()
            assert (d.abs().min() * s <= found + slack).all() and (found <= d.abs().max() * s + slack).all()
            if len(kept):  # after a ReLU it is never larger than after an absolute value, which leaves it as it is
                kappa, bound = found[regular, 0] / found[regular, len(kept) - 1], kept.max() / kept.min()
                assert (kappa <= s[regular, 0] / s[regular, -1] * bound * (1 + 1e-9)).all()
        columns, rounding = (matrices[..., d != 1] ** 2).sum((1, 2)), 10 * ROUNDING * scale**2 * (s**2).sum(1)
        lost = (1 - slope**2) * columns  # all squared singular values fall if the slope is below one
        for change in ((s**2 - moved**2).sum(1), math.copysign(1, 1 - abs(slope)) * (s**2 - moved**2).abs().sum(1)):
            assert ((change - lost).abs() <= rounding).all()
        assert (((s - moved) ** 2).sum(1) <= (1 - slope) ** 2 * columns + rounding).all()


@pytest.mark.claim("Any activation", verdict="holds")
@pytest.mark.parametrize("n", range(1, 6))
def test_diagonal_matrices_attain_each_product_with_the_slopes(n):
    s, d = (gaussian(seed, n).abs().sort(descending=True).values for seed in (15, 16))
    lower, upper = activated(s, d)
    for q in range(n):  # the first of one with the last of the other, up to that place or from it on
        assert (s * d[[*range(q, -1, -1), *range(q + 1, n)]]).sort(descending=True).values[q] == upper[q]
        assert (s * d[[*range(q), *range(n - 1, q - 1, -1)]]).sort(descending=True).values[q] == lower[q]

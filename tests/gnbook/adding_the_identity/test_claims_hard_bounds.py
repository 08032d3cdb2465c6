"""Riedi 2022, section 6.1, statements 27 to 32: bounds that hold for all small weights.

Riedi 2022, section 5, statements 23 to 26: singular values under an activation.
"""

import itertools
import math

import pytest
import torch
from gnbook.adding_the_identity.bounds import hard_bound, riedi_lemma_29, riedi_theorem_31, riedi_theorem_32

from tests.gnbook.adding_the_identity.helpers import ROUNDING, activated, instances, masks, starts, thousand
from tests.oracles import identity, singular
from tests.strategies import attack, exact, gaussian


def bounded(matrices):
    """Return matrices with entries of modulus at most 1, of which one is attained unless all are zero."""
    return matrices / matrices.abs().amax((1, 2), keepdim=True).clamp_min(1e-300)


def products(n, entry, depth):
    """Return 400 products of layers with entries up to `entry` and slopes up to 1, some with all weights extreme."""
    layers = bounded(torch.cat([instances(n), gaussian(n, 200, n, n).sign()])) * entry
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


@pytest.mark.claim("Riedi Lemma 27", verdict="holds")
@thousand
def test_the_norm_is_at_most_the_width_times_the_largest_entry(matrices):
    n = matrices.shape[-1]
    assert (singular(matrices)[:, 0] <= n * matrices.abs().amax((1, 2)) * (1 + ROUNDING)).all()
    assert singular(3 * torch.ones(n, n, dtype=torch.float64))[0].item() == pytest.approx(3 * n)


@pytest.mark.claim("Riedi Lemma 28", verdict="holds")
@pytest.mark.parametrize("n", range(1, 6))
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_products_of_layers_have_no_larger_entries(n, depth):
    for part in (*ENTRIES, 1.0):
        entry = part / n
        largest = products(n, entry, depth).abs().amax().item()
        assert largest <= entry * part ** (depth - 1) * (1 + ROUNDING) <= entry * (1 + ROUNDING)


@pytest.mark.claim("Riedi Lemma 29", verdict="holds")
@pytest.mark.parametrize("n", range(1, 6))
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_with_a_skip_singular_values_stay_around_one(n, depth):
    for part in ENTRIES:
        lower, upper = riedi_lemma_29(part / n, n)
        s = singular(products(n, part / n, depth) + identity(n))
        assert 0 < lower and upper < 2
        assert (lower <= s[:, -1] + ROUNDING).all() and (s[:, 0] <= upper + ROUNDING).all()
        assert (s[:, 0] / s[:, -1] <= upper / lower * (1 + 1e-9)).all()


@pytest.mark.claim("Riedi Theorem 30", verdict="holds")
@pytest.mark.parametrize("n", range(1, 6))
def test_an_absolute_value_leaves_the_bound_of_lemma_29(n):
    for part in ENTRIES:
        lower, upper = riedi_lemma_29(part / n, n)
        for d in masks(n, -1.0):
            kappa = condition((products(n, part / n, 2) + identity(n)) * d, n)
            assert (kappa <= upper / lower * (1 + 1e-9)).all()


def relu_cases(n):
    """Yield the entry, the number of inactive units, and the true condition numbers for every one of D(m, n, 0)."""
    for part in [*ENTRIES, 0.02, 0.3 / (1 + n), 0.49 / (1 + n)]:
        product = torch.cat([products(n, part / n, depth) for depth in (1, 2)]) + identity(n)
        for d in masks(n, 0.0):
            kept = int(d.sum())
            if kept:
                yield part / n, n - kept, condition(product * d, kept)


@pytest.mark.claim("Riedi Theorem 31, Eq. 89", verdict="holds if")
@pytest.mark.claim("Riedi Theorem 31, Eq. 90", verdict="holds if")
@pytest.mark.claim("Riedi Theorem 31, Eq. 91", verdict="holds if")
@pytest.mark.parametrize("n", range(1, 6))
def test_each_bound_for_the_relu(n):
    finite = [0, 0, 0]
    for entry, inactive, kappa in relu_cases(n):
        cn, bounds = entry * n, riedi_theorem_31(entry, n, inactive)
        bottoms = 1 - 2 * cn * (1 + n), 1 - cn - math.sqrt(inactive / n), 1 - 2 * cn * (1 + 2 * inactive)
        printed = [(1 + cn) / x**p if x > 0 else math.inf for x, p in zip(bottoms, (0.5, 1, 0.5), strict=True)]
        assert bounds == pytest.approx(printed, rel=1e-9)
        for i, bound in enumerate(bounds):
            finite[i] += bound < math.inf
            assert (kappa <= bound * (1 + 1e-9)).all()
            assert hard_bound(entry, n, inactive, 0.0) <= bound * (1 + ROUNDING)
    assert min(finite) > 0


@pytest.mark.claim("Riedi Theorem 31, Eq. 89", verdict="holds if")
@pytest.mark.claim("Riedi Theorem 31, Eq. 91", verdict="holds if")
def test_with_no_unit_active_nothing_is_left():
    c, n = 0.01, 1
    assert 2 * c * n < 1 / (1 + 2 * n) < 1 / (1 + n)
    assert singular((exact([[c]]) + identity(n)) * exact([0])).tolist() == [0]


def leaky_cases(n, slopes):
    """Yield the entry, the number of inactive units, the slope and the true condition numbers."""
    for part, slope in itertools.product([0.0, 0.05, 0.5, 0.9], slopes):
        product = torch.cat([products(n, part / n, depth) for depth in (1, 2)]) + identity(n)
        for m in range(n + 1):
            d = torch.ones(n, dtype=torch.float64)
            d[:m] = slope
            yield part / n, m, slope, condition(product * d, n)


@pytest.mark.claim("Riedi Theorem 32, Eq. 100", verdict="holds")
@pytest.mark.claim("Riedi Theorem 32, Eq. 101", verdict="holds")
@pytest.mark.parametrize("n", range(1, 8))
def test_each_bound_for_the_leaky_relu(n):
    finite = [0, 0]
    for entry, inactive, slope, kappa in leaky_cases(n, [0.7, 0.9, 0.99, 0.999, 1.0]):
        cn, bounds = entry * n, riedi_theorem_32(entry, n, inactive, slope)
        square, linear = (1 - cn) ** 2 - 4 * (1 - slope) * inactive**0.5, (1 - slope) * inactive * (3 * entry + 1)
        printed = [(1 + cn) / x**p if x > 0 else math.inf for x, p in ((square, 0.5), (1 - cn - linear, 1))]
        assert bounds == pytest.approx(printed, rel=1e-9)
        for i, bound in enumerate(bounds):
            finite[i] += bound < math.inf and inactive > 0
            assert (kappa <= bound * (1 + 1e-9)).all()
            assert hard_bound(entry, n, inactive, slope) <= bound * (1 + ROUNDING)
    assert min(finite) > 0


@pytest.mark.claim("Riedi, absolute value against ReLU", verdict="fails")
@thousand
def test_after_a_relu_the_condition_number_is_never_larger_than_after_an_absolute_value(matrices):
    for shift in (0.0, 1.0):
        m = matrices + shift * identity(matrices.shape[-1])
        m = m[singular(m)[:, -1] > 1e-6]
        absolute = condition(m, m.shape[-1])
        for d in masks(m.shape[-1], 0.0)[1:]:
            assert (condition(m * d, int(d.sum())) <= absolute * (1 + 1e-9)).all()


@pytest.mark.claim("Hard bound, any slope", verdict="holds")
@pytest.mark.parametrize("n", range(1, 6))
@pytest.mark.parametrize("slope", [-1.0, -0.4, 0.0, 0.05, 0.7, 1.0])
def test_the_hard_bound_for_any_slope_and_depth(n, slope):
    for part, depth in itertools.product(ENTRIES, (1, 2, 3)):
        product = products(n, part / n, depth) + identity(n)
        for m in range(n + (slope != 0)):
            d = torch.ones(n, dtype=torch.float64)
            d[:m] = slope
            kappa = condition(product * d, n if slope else n - m)
            assert (kappa <= hard_bound(part / n, n, m, slope, depth) * (1 + 1e-9)).all()


@pytest.mark.claim("Hard bound, any slope", verdict="holds")
def test_it_is_attained_by_nine_weights_of_one_size():
    signs = exact([[-1, -1, 1], [-1, -1, 1], [1, 1, 1]])
    kappa = condition(signs / 9 + identity(3), 3).item()
    assert kappa == pytest.approx(hard_bound(1 / 9, 3), rel=1e-12)
    assert kappa < 0.9 * (1 + 1 / 3) / (1 - 1 / 3)


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


@pytest.mark.claim("Any activation", verdict="holds")
@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("end", ["lower", "upper"])
def test_an_attack_attains_the_products_with_the_slopes_and_does_not_pass_them(n, end):
    def excess(m, slopes):
        s, sign = singular(m), 1 if end == "upper" else -1
        bound, scale = activated(s, slopes)[end == "upper"], s[:, :1] * slopes.abs().amax(-1, keepdim=True)
        return (sign * (singular(m * slopes[:, None]) - bound) / scale).amax(-1)

    assert -1e-3 < attack(excess, starts(15, n), gaussian(16, 48, n)) < ROUNDING

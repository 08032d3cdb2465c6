"""Riedi 2022, section 6.2, statements 36 to 38: one residual layer with random weights and absolute values.

Riedi 2022, section 6.3, statements 41 and 42: random layers with the skip and without.
"""

import itertools
import math

import numpy as np
import pytest
import scipy
import torch
from gnbook.random_layers import bounds as layers
from gnbook.random_layers import matrices as rm
from gnbook.shared.skips import kaiming_skip_limits
from hypothesis import given
from hypothesis import strategies as st

from tests.gnbook.random_layers.helpers import (
    LEVEL,
    condition,
    distance,
    draw,
    noise,
    parts,
    random_layers,
    region,
    rejected,
    scales,
    squares_of_any_kind,
)
from tests.oracles import identity
from tests.strategies import exact, gaussian, instances, orthogonal, seeds


@pytest.mark.claim("Riedi Lemma 36, i", verdict="holds")
@instances
@given(st.integers(2, 8), seeds, st.sampled_from(rm.LAWS), st.floats(1.01, 20))
def test_the_extreme_eigenvalues_in_terms_of_z(n, seed, law, r):
    k = draw(n, 1, law, seed)[0]
    raw, layer = rm.extremes(k), rm.extremes(k / (r * math.sqrt(8 * n)))
    high, low = ((t - math.sqrt(8 * n)) * n ** (1 / 6) for t in (raw.tau_largest, -raw.tau_smallest))
    scale = math.sqrt(8) * n ** (2 / 3)
    assert layer.tau_largest.item() == pytest.approx((1 + high.item() / scale) / r, abs=1e-12)
    assert -layer.tau_smallest.item() == pytest.approx((1 + low.item() / scale) / r, abs=1e-12)
    assert (layer.tau_smallest > -1) == (low < (r - 1) * scale)


@pytest.mark.claim("Riedi Eq. 113", verdict="fails")
def test_eq_113_fails_for_the_zero_matrix_of_size_four_and_never_for_smaller_ones():
    for n in range(2, 40):
        mu, q = rm.singular_scaling(n)
        y = (torch.linspace(0, 6 * math.sqrt(n), 2000, dtype=torch.float64) ** 2 - mu) / q
        excess = (mu + q * y) / (4 * n) - (1 + y / (2**0.5 * n ** (2 / 3)))
        assert (excess.max() > 0) == (n >= 4)
        assert n < 4 or excess[0] > 0  # s_1 = 0: the zero matrix


@pytest.mark.claim("Eq. 113, repaired", verdict="holds")
@pytest.mark.parametrize("n", [2, 3, 4, 10, 100, 10**4])
def test_with_the_positive_part_eq_113_holds(n):
    mu, q = rm.singular_scaling(n)
    squares = torch.linspace(0, 16 * n, 5000, dtype=torch.float64)
    y = (squares - mu) / q
    assert (squares / (4 * n) <= 1 + y.clamp_min(0) / (2**0.5 * n ** (2 / 3))).all()


@pytest.mark.claim("Riedi Lemma 36, iii and iv", verdict="holds")
@instances
@given(squares_of_any_kind, scales)
def test_the_bounds_of_the_condition_number_for_any_matrix(weight, scale):
    weight = scale * weight
    s1, sn, low, high = (value.item() for value in parts(weight))
    singular, bounds = torch.linalg.svdvals(weight + identity(len(weight))), layers.riedi_lemma_36(rm.extremes(weight))
    kappa = condition(weight + identity(len(weight))).item()
    if s1 < 1:
        top = math.sqrt(max(s1**2 + high + 1, 0))
        assert kappa <= top / (1 - s1) * (1 + 1e-9) <= (1 + s1) / (1 - s1) * (1 + 2e-9)
        assert bounds.norm.item() == pytest.approx(top / (1 - s1))
    if low > -1:
        chain = (0, sn**2 + low + 1, singular[-1].item() ** 2, singular[0].item() ** 2, s1**2 + high + 1)
        assert all(a <= b + 1e-12 * chain[-1] for a, b in itertools.pairwise(chain)) and chain[1] > 0
        first, second = math.sqrt(chain[-1] / (low + 1)), (s1 + 1) / math.sqrt(low + 1)
        assert kappa <= first * (1 + 1e-9) <= second * (1 + 2e-9)
        assert bounds.symmetric.item() == pytest.approx(first)
    assert kappa <= bounds.sharper.item() * (1 + 1e-9) or kappa > 1e8
    assert bounds.sharper <= min(bounds.norm, bounds.symmetric) * (1 + 1e-9)


@pytest.mark.claim("Riedi Lemma 36, which condition is easier", verdict="holds if")
def test_neither_condition_implies_the_other():
    for w, norm_below_one, tau_above in ((-0.7, True, False), (5.0, False, True)):
        layer = rm.extremes(exact([[w]]))
        assert (layer.largest.item() < 1, layer.tau_smallest.item() > -1) == (norm_below_one, tau_above)


@pytest.mark.claim("Riedi Lemma 36, which condition is easier", verdict="holds if")
def test_for_large_random_layers_the_norm_is_the_easier_one():
    for r, expected in ((0.65, (0, 0)), (0.85, (1, 0)), (1.2, (1, 1))):
        layer = rm.extremes(random_layers(200, 10, r))
        shares = ((layer.largest < 1).double().mean().item(), (layer.tau_smallest > -1).double().mean().item())
        assert shares == expected


@pytest.mark.claim("Riedi Figure 6, ten per cent", verdict="holds")
def test_the_bounds_are_above_one_and_the_last_about_ten_per_cent():
    low, high = kaiming_skip_limits(2 * math.sqrt(8))
    limits = (low**2 / 16, 52 / high**2, layers.riedi_theorem_38(2).symmetric / layers.skip_condition_limit(2))
    assert limits == pytest.approx((1.150, 1.028, 1.087), abs=6e-4)
    for n, count, tolerance in ((5, 1000, 0.09), (400, 4, 0.012)):
        weights = random_layers(n, count, 2)
        layer, singular = rm.extremes(weights), torch.linalg.svdvals(weights + identity(n))
        ratios = (
            singular[:, -1] ** 2 / (layer.smallest**2 + layer.tau_smallest + 1),
            (layer.largest**2 + layer.tau_largest + 1) / singular[:, 0] ** 2,
            layers.riedi_lemma_36(layer).symmetric / condition(weights + identity(n)),
        )
        for ratio, limit in zip(ratios, limits, strict=True):
            assert ratio.min() > 1 and ratio.mean().item() == pytest.approx(limit, abs=tolerance)


@pytest.mark.claim("Limit of one layer with a skip", verdict="holds")
@pytest.mark.parametrize("r", [0.6, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("law", rm.LAWS)
def test_the_condition_number_tends_to_its_limit(r, law):
    errors = [
        abs(condition(random_layers(n, count, r, law) + identity(n)).mean().item() / layers.skip_condition_limit(r) - 1)
        for n, count in ((10, 300), (400, 4))
    ]
    assert errors[1] < min(0.05, errors[0])
    assert layers.skip_condition_limit(r) < layers.riedi_theorem_38(r).sharper


@pytest.mark.claim("Riedi Corollary 37", verdict="holds")
@instances
@given(squares_of_any_kind, scales, seeds)
def test_absolute_values_leave_the_bounds_in_force_for_any_signs(weight, scale, seed):
    n = len(weight)
    random = gaussian(seed, 3, n)
    weight = scale * weight
    for d1 in (random[0].sign(), (weight @ random[1] + 1e-300).sign()):  # signs at random, and those of an input
        layer = rm.extremes(d1[:, None] * weight)
        kappa, bounds = condition(region(weight, d1, random[2].sign())), layers.riedi_lemma_36(layer)
        assert kappa <= min(bounds.norm, bounds.symmetric) * (1 + 1e-9) or kappa > 1e8
        assert layer.largest.item() == pytest.approx(rm.extremes(weight).largest.item(), abs=1e-12)


@pytest.mark.claim("Riedi Corollary 37, i", verdict="holds")
def test_the_norm_of_a_gaussian_layer_tends_to_its_limit():
    for r in (1.1, 2.0, 5.0):
        signs = gaussian(7, 900).sign()
        norm = torch.linalg.matrix_norm(signs[:, None] * random_layers(900, 1, r)[0], 2).item()
        assert norm == pytest.approx(1 / (2**0.5 * r), rel=0.02)


@pytest.mark.claim("Riedi Corollary 37, equal in distribution", verdict="holds if")
def test_fixed_signs_leave_the_law_alone():
    weights, signs = random_layers(6, 3000, 2), exact([1, -1, -1, 1, -1, 1])
    plain, signed = rm.extremes(weights), rm.extremes(signs[:, None] * draw(6, 3000, seed=1) / (2 * math.sqrt(48)))
    for a, b in ((plain.tau_largest, signed.tau_largest), (-plain.tau_smallest, signed.tau_largest)):
        assert scipy.stats.ks_2samp(a.numpy(), b.numpy()).pvalue > LEVEL


@pytest.mark.claim("Riedi Corollary 37, equal in distribution", verdict="holds if")
def test_the_signs_that_an_input_gives_do_not():
    weights = draw(1, 1000)[:, 0, 0]
    signed = weights.sign() * weights  # the input 1: D1 W = |W|
    assert (signed > 0).all() and rejected(weights < 0, 0.3)
    weights, z = random_layers(6, 3000, 2), torch.ones(6, dtype=torch.float64)
    signs = (weights @ z).sign()
    plain, signed = rm.extremes(weights), rm.extremes(signs[:, :, None] * weights)
    assert scipy.stats.ks_2samp(plain.tau_largest.numpy(), signed.tau_largest.numpy()).pvalue < LEVEL


@pytest.mark.claim("Riedi Eq. 119 and 120", verdict="holds")
def test_exceptional_events_are_rare_and_vanish():
    layer = rm.extremes(random_layers(5, 20_000, 2))
    assert (layer.tau_smallest > -1).all() and (layer.largest < 1).all()
    shares = []
    for n, count in ((5, 4000), (20, 2000), (80, 500)):
        layer = rm.extremes(random_layers(n, count, 1.02))
        shares.append([(layer.tau_smallest <= -1).double().mean().item(), (layer.largest >= 1).double().mean().item()])
    assert shares[0][0] > shares[1][0] > shares[2][0] and shares[0][0] > 0.03
    assert all(norm <= tau for tau, norm in shares)


@pytest.mark.claim("Riedi Theorem 38", verdict="holds")
def test_the_limits_of_the_bounds():
    assert layers.riedi_theorem_38(2).symmetric == pytest.approx(1.8028, abs=5e-5)
    assert layers.riedi_theorem_38(2).norm == pytest.approx(1.9719, abs=5e-5)
    for law, r in itertools.product(rm.LAWS, (1.5, 3.0)):
        errors = []
        for n, count in ((10, 200), (400, 2)):
            bounds, limits = (
                layers.riedi_lemma_36(rm.extremes(random_layers(n, count, r, law))),
                layers.riedi_theorem_38(r),
            )
            errors.append([abs(b.median().item() / limit - 1) for b, limit in zip(bounds, limits, strict=True)])
        assert max(errors[1]) < 0.03 and max(errors[1]) < max(errors[0])


@pytest.mark.claim("Riedi introduction, condition number of 3", verdict="holds if")
@instances
@given(st.floats(1.001, 3), st.integers(5, 50), st.floats(0, 1), st.floats(1e-3, 1), st.floats(0.5, 2))
def test_from_where_each_bound_is_below_three(r, n, share, part, factor):
    bounds = layers.riedi_theorem_38(r)
    for value, least in (
        (bounds.symmetric, (5 + math.sqrt(29)) / 8),
        (bounds.norm, 1.3439536),
        (bounds.sharper, 1.0395781),
        (layers.all_regions_limit(r), 1.1678875),
    ):
        assert (value < 3) == (r > least) or abs(r - least) < 1e-6
    off, theta = 1 + int(share * (n - 2)), 4 + part * (2 * math.sqrt(n) - 4)
    edge = 8 + 6 * off + 3 * theta  # nu = m for tilde m = 0
    assert layers.riedi_theorem_39(n, off, 0, edge, theta).bound == pytest.approx(3, rel=1e-9)
    if factor * edge > 2 + 2 * off + theta:
        assert (layers.riedi_theorem_39(n, off, 0, factor * edge, theta).bound <= 3 + 1e-9) == (factor >= 1 - 1e-9)
    assert edge > 26


@pytest.mark.claim("Riedi introduction, condition number of 3", verdict="holds if")
@instances
@given(st.floats(1, 100), st.floats(1e-3, 10))
def test_the_limit_of_one_layer_is_below_three_for_all_r_above_one(r, more):
    assert layers.skip_condition_limit(r + more) < layers.skip_condition_limit(r) < 2.852
    assert layers.skip_condition_limit(0.957) > 3 > layers.skip_condition_limit(0.959)


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
        with_skip == pytest.approx(condition(signs[0][:, None] * weight + identity(n)).item(), rel=1e-6)
        or with_skip > 1e6
    )
    if layer.largest < 1 and without >= (1 + layer.largest) / (1 - layer.largest):
        assert without >= with_skip * (1 - 1e-9)


@pytest.mark.claim("Riedi Theorem 42", verdict="holds")
def test_without_eq_152_a_skip_can_hurt():
    weight = 0.5 * orthogonal(0, 4)
    assert condition(weight) < 1 + 1e-9 and condition(weight + identity(4)) > 1.1

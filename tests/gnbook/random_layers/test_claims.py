"""Riedi 2022, section 6, statements 33 to 42: large random matrices, and one layer with a skip around it.

A statement in probability fails if an exact binomial test rejects it at the level 1e-6. Seeds are fixed.
"""

import itertools
import math

import numpy as np
import pytest
import scipy
import torch
from gnbook.piecewise_linear_maps.one_layer import layer_factors
from gnbook.random_layers import bounds as layers
from gnbook.random_layers import matrices as rm
from gnbook.shared.piecewise_linear import Layer
from gnbook.shared.skips import kaiming_skip_limits, skip_bounds
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles import identity
from tests.strategies import exact, gaussian, matrices, orthogonal, seeds

LEVEL = 1e-6
squares_of_any_kind = st.integers(1, 5).flatmap(lambda n: matrices(n, n))
scales = st.sampled_from([0.02, 0.1, 0.3, 0.6, 1.0, 3.0])
slopes = st.sampled_from([-1.0, -0.4, 0.0, 0.05, 0.3, 0.9, 1.0])


def draw(n, count, law="gaussian", seed=0):
    return rm.draw(n, count, law, generator=torch.Generator().manual_seed(seed))


def random_layers(n, count, r, law="gaussian", seed=0):
    """Layers with entries of standard deviation 1 / (r sqrt(8 n))."""
    return draw(n, count, law, seed) / (r * math.sqrt(8 * n))


def rejected(failures, probability):
    """Say whether that many failures are too many for events of at most that probability."""
    failures = failures.tolist()
    return scipy.stats.binomtest(sum(failures), len(failures), min(probability, 1), "greater").pvalue < LEVEL


def condition(matrix, rank=None):
    """Largest over smallest singular value, of the first `rank` of them."""
    singular = torch.linalg.svdvals(matrix)
    last = singular[..., -1 if rank is None else rank - 1]
    return (singular[..., 0] / last).where(last > 0, torch.inf)


def region(weight, d1, d):
    """(D1 W + I) D for diagonals given as vectors."""
    return (d1[..., :, None] * weight + identity(weight.shape[-1])) * d[..., None, :]


GRID = np.linspace(-10, 8, 361)
TRACY_WIDOM = rm.tracy_widom_cdf(GRID)


def distance(sample, cdf=lambda t: np.interp(t, GRID, TRACY_WIDOM)):
    """Kolmogorov's distance of a sample from a distribution function; Tracy's and Widom's if none is given."""
    sample = np.sort(np.asarray(sample))
    at, steps = cdf(sample), np.arange(len(sample) + 1) / len(sample)
    return max((at - steps[:-1]).max(), (steps[1:] - at).max())


def noise(count):
    """The distance of a sample from its own law that is exceeded with probability LEVEL at most (Massart)."""
    return math.sqrt(math.log(2 / LEVEL) / (2 * count))


@pytest.mark.claim("Riedi Theorem 33", "Riedi Eq. 106", verdict="holds if")
@pytest.mark.claim("Riedi Theorem 35", "Riedi Corollary 37, i", verdict="holds")
def test_the_ends_follow_tracy_and_widom_the_eigenvalues_with_a_factor_the_root_of_two():
    n, count = 60, 1500
    (centre, scale), (mu, q) = rm.symmetric_scaling(n), rm.singular_scaling(n)
    for law, bias in (("gaussian", 0.08), ("uniform", 0.14)):
        k = rm.extremes(draw(n, count, law))
        for values in ((k.tau_largest - centre) / scale, (-k.tau_smallest - centre) / scale):
            assert distance(values) < bias + noise(count) and distance(values * 2**0.5) > 0.2
    k = rm.extremes(draw(n, count))
    y, z = (k.largest**2 - mu) / q, 2**0.5 * (k.tau_largest - centre) / scale
    assert distance(y) < 0.03 + noise(count) and min(distance(y / 2**0.5), distance(y * 2**0.5)) > 0.1
    for constant in (1.0, 3.0, 6.0):  # the interval that shrinks by that rate
        low, high = np.interp([-constant / 2**0.5, constant / 2**0.5], GRID, TRACY_WIDOM)
        share = (z.abs() <= constant).double().mean().item()
        assert abs(share - (high - low)) < 0.1 + 2 * noise(count) and (share > 0.95) == (constant == 6)
    norm = torch.linalg.matrix_norm(gaussian(7, 900).sign()[:, None] * random_layers(900, 1, 2.0)[0], 2).item()
    assert norm == pytest.approx(1 / (2**0.5 * 2.0), rel=0.015)


@pytest.mark.claim("Riedi Eq. 107 and 108", verdict="holds")
@pytest.mark.parametrize("law", rm.LAWS)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_both_ends_have_one_law_and_are_not_independent(n, law):
    t = rm.extremes(draw(n, 3000, law))
    assert scipy.stats.ks_2samp(t.tau_largest.numpy(), -t.tau_smallest.numpy()).pvalue > LEVEL
    correlation = torch.corrcoef(torch.stack([t.tau_largest, -t.tau_smallest]))[0, 1].item()
    assert correlation < -0.1  # that of three thousand independent pairs is closer to zero


@pytest.mark.claim("Riedi Theorem 34", verdict="holds if")
@pytest.mark.claim("Riedi Lemma 36, i", verdict="holds")
@given(st.integers(1, 8), seeds, st.sampled_from(rm.LAWS), st.floats(0, 3), st.floats(1.01, 20))
def test_singular_values_are_distinct_and_grow_as_stated_and_the_eigenvalues_in_terms_of_z(n, seed, law, skip, r):
    matrix = draw(n, 1, law, seed)[0]
    before, after = torch.linalg.svdvals(matrix), torch.linalg.svdvals(matrix + skip * identity(n))
    raw, layer = rm.extremes(matrix), rm.extremes(matrix / (r * math.sqrt(8 * n)))
    assert n == 1 or (before[:-1] - before[1:]).min() > 1e-12 * before[0]
    growth, slack = after**2 - before**2, 1e-12 * (before[0] + skip) ** 2
    assert (growth >= skip * raw.tau_smallest + skip**2 - slack).all()
    assert (growth <= skip * raw.tau_largest + skip**2 + slack).all()
    scale = math.sqrt(8) * n ** (2 / 3)
    for t, tau in ((raw.tau_largest, layer.tau_largest), (-raw.tau_smallest, -layer.tau_smallest)):
        z = ((t - math.sqrt(8 * n)) * n ** (1 / 6)).item()
        assert tau.item() == pytest.approx((1 + z / scale) / r, abs=1e-12)
    assert (layer.tau_smallest > -1) == (z < (r - 1) * scale)


@pytest.mark.claim("Riedi Theorem 34", verdict="holds if")
def test_jointly_gaussian_entries_without_a_density_and_negative_skips_are_other_cases():
    matrix, skip = exact([[1, 0], [0, -0.5]]), -1.0
    before, after = torch.linalg.svdvals(matrix), torch.linalg.svdvals(matrix + skip * identity(2))
    assert (after**2 - before**2)[1] == -0.25 and skip * rm.extremes(matrix).tau_smallest + skip**2 == 2
    for g in (-1.3, 0.2, 2.0):  # g times the identity, g normal
        singular = torch.linalg.svdvals(g * identity(2))
        assert singular[0] == singular[1]


@pytest.mark.claim("Riedi Theorem 35, bounds of its constants", "Eq. 113, repaired", verdict="holds")
@pytest.mark.claim("Riedi Eq. 113", verdict="fails")
def test_the_bounds_of_the_constants_and_eq_113_which_needs_a_positive_part_from_size_four_on():
    for n in (*range(2, 400), 10**4, 10**8):
        mu, q = rm.singular_scaling(n)
        steps = (q, math.sqrt(4 * n) * 2 ** (1 / 3) * (n - 1) ** (-1 / 6), 2**1.5 * n ** (1 / 3))
        assert mu < 4 * n and steps[0] < steps[1] <= steps[2] * (1 + 1e-12)
        share = torch.linspace(0, 3, 2000, dtype=torch.float64) ** 2  # of 4 n
        y = (4 * n * share - mu) / q / (2**0.5 * n ** (2 / 3))
        assert (share <= 1 + y.clamp_min(0)).all()
        excess = share - (1 + y)
        assert (excess.max() > 0) == (n >= 4) and (n < 4 or excess[0] > 0)  # s_1 = 0: the zero matrix


@pytest.mark.claim("Riedi Figure 5, ratio", verdict="holds")
def test_the_ratio_tends_to_the_root_of_two():
    spread = []
    for n, count in ((10, 2000), (40, 1000), (250, 30)):
        layer = rm.extremes(draw(n, count))
        ratio = layer.tau_largest / layer.largest / 2**0.5
        assert ratio.max() <= 2**0.5
        assert n > 10 or ((ratio > 0.6) & (ratio < 1.4)).double().mean() > 0.98
        spread.append((ratio - 1).abs().mean().item())
    assert spread[0] > 2 * spread[1] > 2 * spread[2] and spread[2] < 0.02


@pytest.mark.claim("Riedi Lemma 36, iii and iv", "Riedi Corollary 37", "Riedi Theorem 42", verdict="holds")
@given(squares_of_any_kind, scales, seeds)
def test_the_bounds_of_the_condition_number_for_any_matrix_and_any_signs(weight, scale, seed):
    weight, n, random = scale * weight, len(weight), gaussian(seed, 3, len(weight))
    for d1 in (torch.ones(n), random[0].sign(), (weight @ random[1] + 1e-300).sign()):  # the last ones of an input
        signed = d1[:, None] * weight
        layer = rm.extremes(signed)
        s1, sn, high, low = (value.item() for value in layer)
        assert s1 == pytest.approx(torch.linalg.matrix_norm(weight, 2).item(), abs=1e-12)
        bounds, exact_bounds = layers.riedi_lemma_36(layer), skip_bounds(signed, 1.0)
        whole = region(weight, d1, random[2].sign())
        singular, kappa = torch.linalg.svdvals(whole), condition(whole).item()
        if s1 < 1:
            top = math.sqrt(max(s1**2 + high + 1, 0))
            assert kappa <= top / (1 - s1) * (1 + 1e-9) <= (1 + s1) / (1 - s1) * (1 + 2e-9)
            assert bounds.norm.item() == pytest.approx(top / (1 - s1))
            without = condition(signed)  # Theorem 42
            assert without < (1 + s1) / (1 - s1) or without >= kappa * (1 - 1e-9)
        if low > -1:
            chain = (0, sn**2 + low + 1, singular[-1].item() ** 2, singular[0].item() ** 2, s1**2 + high + 1)
            assert all(a <= b + 1e-12 * chain[-1] for a, b in itertools.pairwise(chain)) and chain[1] > 0
            first, second = math.sqrt(chain[-1] / (low + 1)), (s1 + 1) / math.sqrt(low + 1)
            assert kappa <= first * (1 + 1e-9) <= second * (1 + 2e-9)
            assert bounds.symmetric.item() == pytest.approx(first)
        sharper = exact_bounds.upper / exact_bounds.lower if exact_bounds.lower else math.inf
        assert bounds.sharper.item() == pytest.approx(sharper) or kappa > 1e8
        assert kappa <= bounds.sharper.item() * (1 + 1e-9) or kappa > 1e8
        assert bounds.sharper <= min(bounds.norm, bounds.symmetric) * (1 + 1e-9)


@pytest.mark.claim("Riedi Lemma 36, which condition is easier", verdict="holds if")
def test_neither_condition_implies_the_other_but_for_large_random_layers_the_norm_is_the_easier_one():
    cases = [(exact([[[-0.7]]]), (1, 0)), (exact([[[5.0]]]), (0, 1))]
    cases += [(random_layers(200, 10, r), expected) for r, expected in ((0.65, (0, 0)), (0.85, (1, 0)), (1.2, (1, 1)))]
    for weights, expected in cases:
        layer = rm.extremes(weights)
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


@pytest.mark.claim("Limit of one layer with a skip", "Riedi Theorem 38", verdict="holds")
@pytest.mark.parametrize("r", [0.6, 1.0, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("law", rm.LAWS)
def test_the_condition_number_and_its_bounds_tend_to_their_limits(r, law):
    limit, limits, errors = layers.skip_condition_limit(r), layers.riedi_theorem_38(r), []
    assert limit < limits.sharper
    for n, count in ((10, 300), (400, 4)):
        weights = random_layers(n, count, r, law)
        bounds = layers.riedi_lemma_36(rm.extremes(weights)) if r > 1 else []
        kappa = abs(condition(weights + identity(n)).mean().item() / limit - 1)
        errors.append((kappa, [abs(b.median().item() / c - 1) for b, c in zip(bounds, limits, strict=r > 1)]))
    (kappa, of_bounds), (few_kappa, few_of_bounds) = errors[1], errors[0]
    assert kappa < min(0.05, few_kappa)
    assert r <= 1 or max(of_bounds) < min(0.03, max(few_of_bounds))


@pytest.mark.claim("Riedi Theorem 38", verdict="holds")
@pytest.mark.claim("Riedi introduction, condition number of 3", verdict="holds if")
@given(st.floats(1.001, 3), st.floats(1e-3, 10), *(st.floats(0, 1),) * 2, st.integers(5, 50), st.floats(0.5, 2))
def test_from_where_each_bound_is_finite_and_below_three(r, more, share, part, n, factor):
    bounds = layers.riedi_theorem_38(r)
    for value, least in (
        (bounds.symmetric, (5 + math.sqrt(29)) / 8),
        (bounds.norm, 1.3439536),
        (bounds.sharper, 1.0395781),
        (layers.all_regions_limit(r), 1.1678875),
    ):
        assert (value < 3) == (r > least) or abs(r - least) < 1e-6
    assert layers.riedi_theorem_38(2)[:2] == pytest.approx((1.9719, 1.8028), abs=5e-5)
    assert [*layers.riedi_theorem_38(0.5), layers.all_regions_limit(0.5)] == [math.inf] * 4
    assert layers.skip_condition_limit(0.99 / 8**0.5) == math.inf
    off, theta = 1 + int(share * (n - 2)), 4 + max(part, 1e-3) * (2 * math.sqrt(n) - 4)
    edge = 8 + 6 * off + 3 * theta  # nu = m for tilde m = 0
    assert layers.riedi_theorem_39(n, off, 0, edge, theta).bound == pytest.approx(3, rel=1e-9) and edge > 26
    if factor * edge > 2 + 2 * off + theta:
        assert (layers.riedi_theorem_39(n, off, 0, factor * edge, theta).bound <= 3 + 1e-9) == (factor >= 1 - 1e-9)
    assert layers.skip_condition_limit(r + more) < layers.skip_condition_limit(r) < 2.852
    assert layers.skip_condition_limit(0.957) > 3 > layers.skip_condition_limit(0.959)


@pytest.mark.claim("Riedi Corollary 37, equal in distribution", verdict="holds if")
def test_fixed_signs_leave_the_law_alone_and_those_that_an_input_gives_do_not():
    weights, signs = random_layers(6, 3000, 2), exact([1, -1, -1, 1, -1, 1])
    plain, fixed = rm.extremes(weights), rm.extremes(signs[:, None] * random_layers(6, 3000, 2, seed=1))
    given_by_ones = (weights @ torch.ones(6).double()).sign()
    of_input = rm.extremes(given_by_ones[:, :, None] * weights)
    for a, b, same in (
        (plain.tau_largest, fixed.tau_largest, True),
        (-plain.tau_smallest, fixed.tau_largest, True),
        (plain.tau_largest, of_input.tau_largest, False),
    ):
        assert (scipy.stats.ks_2samp(a.numpy(), b.numpy()).pvalue > LEVEL) == same
    one = draw(1, 1000)[:, 0, 0]
    assert (one.sign() * one > 0).all() and rejected(one < 0, 0.3)  # the input 1: D1 W = |W|


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


@pytest.mark.claim("Riedi Lemma 41", "Riedi Theorem 42", verdict="holds")
@pytest.mark.parametrize("law", rm.LAWS)
def test_without_a_skip_the_condition_number_outgrows_the_bound(law):
    for r, least in ((1.1, 0.95), (2.0, 0.999)):
        shares = []
        for n, count in ((5, 3000), (40, 1000)):
            layer = rm.extremes(random_layers(n, count, r, law))
            ceiling = (1 + layer.largest) / (1 - layer.largest)
            shares.append(((layer.largest < 1) & (layer.largest / layer.smallest >= ceiling)).double().mean().item())
        assert shares[1] >= max(least, shares[0])
    weight = 0.5 * orthogonal(0, 4)  # where it does not, a skip can hurt
    assert condition(weight) < 1 + 1e-9 and condition(weight + identity(4)) > 1.1


@pytest.mark.claim("Riedi Eq. 154", verdict="holds")
def test_the_law_of_the_condition_number_without_a_skip():
    def cdf(t):
        return np.exp(-2 / t - 2 / t**2)

    t = np.linspace(0.3, 50, 200)
    assert (cdf(t + 1e-5) - cdf(t - 1e-5)) / 2e-5 == pytest.approx((2 * t + 4) / t**3 * cdf(t), abs=1e-8)
    ratio = (condition(draw(60, 1000)) / 60).numpy()
    assert distance(ratio, cdf) < 0.02 + noise(1000) and distance(2 * ratio, cdf) > 0.1


def switches(n, off, rng):
    """The diagonal of a ReLU with that many units off, at random."""
    return torch.from_numpy(rng.permutation(n) >= off).double()


@pytest.mark.claim("Riedi Theorem 39", verdict="holds if")
@pytest.mark.claim("Riedi Corollary 40", verdict="fails")
def test_the_bounds_for_relus_hold_as_often_as_stated():
    """They hold for all these draws, where a few failures would be allowed."""
    rng = np.random.default_rng(0)
    for _ in range(1000):
        n = int(rng.integers(5, 15))
        off = int(rng.integers(n))
        off_residual = int(rng.integers(0 if off else 1, n + 1))
        theta, factor = 4 + (2 * math.sqrt(n) - 4) * (1 - rng.random()), 1 + 10.0 ** rng.uniform(-3, 1)
        k, d1, d = torch.from_numpy(rng.standard_normal((n, n))), switches(n, off_residual, rng), switches(n, off, rng)
        nu = off + off_residual - off * off_residual / n
        assert 1 <= nu <= n and nu == pytest.approx((n**2 - (n - off) * (n - off_residual)) / n)
        found = []  # extreme singular values that are not zero by D, and norms, for three sizes of the weights
        sizes = [factor * (2 + 2 * nu + theta), factor * (factor * (1 + nu) + theta), factor * (2 + 2 * n + theta)]
        for r in sizes:
            weight = k / (r * math.sqrt(8 * n))
            singular = torch.linalg.svdvals(region(weight, d1, d))[: n - off]
            found.append((singular[0], singular[-1], torch.linalg.matrix_norm(weight, 2)))
        (top, bottom, _), (second, least, norm), (largest, smallest, _) = found
        bound, failure = layers.riedi_theorem_39(n, off, off_residual, sizes[0], theta)
        assert top / bottom <= bound == pytest.approx(2 * (1 + 1 / sizes[0]) / (1 - 1 / factor))
        assert failure == pytest.approx(2 * math.exp(-(theta**2) / 2))
        assert second / least <= 2 * (1 + norm) / (1 - 1 / factor)  # with r' = factor, above one
        assert (1 - 1 / factor) / 2 <= smallest and largest <= 1 + 1 / sizes[2]


@pytest.mark.claim("Riedi Theorem 39", verdict="holds if")
@pytest.mark.claim("Riedi Corollary 40", verdict="fails")
@pytest.mark.parametrize("off", [2, 6])
def test_units_that_are_off_bring_zeros_below_any_lower_bound_and_all_of_them_leave_nothing(off):
    d = switches(6, off, np.random.default_rng(0))
    singular = torch.linalg.svdvals(region(random_layers(6, 1, 30)[0], torch.ones(6).double(), d))
    assert (singular[6 - off :] < 1e-12).all() and (singular[: 6 - off] > 0.9).all()


@pytest.mark.claim("Riedi Theorem 39, smaller weights for more units off", verdict="fails")
@pytest.mark.parametrize("off, off_residual", [(1, 0), (20, 20), (39, 40), (0, 40)])
def test_the_same_weights_do_whatever_units_are_off(off, off_residual):
    n, rng = 40, np.random.default_rng(0)
    for weight in random_layers(n, 30, 2):
        kappa = condition(region(weight, switches(n, off_residual, rng), switches(n, off, rng)), n - off)
        assert kappa < 2 < layers.riedi_theorem_39(n, off, off_residual, 1e6, 4.5).bound


@st.composite
def branches(draw):
    """Draw the two matrices of a branch, of any inner width, hostile ones among them."""
    n, m = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    return draw(scales) * draw(matrices(m, n)), draw(scales) * draw(matrices(n, m))


@pytest.mark.claim("All regions", "All regions of a branch", verdict="holds")
@given(squares_of_any_kind, scales, branches(), slopes, seeds)
def test_no_region_is_beyond_the_bounds(weight, scale, branch, slope, seed):
    """A layer is a branch whose outer matrix is the identity."""
    weight, generator = scale * weight, torch.Generator().manual_seed(seed)
    cases = [(weight, identity(len(weight)), layers.all_regions(weight, slope))]
    cases.append((*branch, layers.all_regions_of_branch(*branch, slope)))
    for inner, outer, (lower, upper) in cases:
        m, n = inner.shape
        between = slope + (1 - slope) * torch.rand(40, m, generator=generator, dtype=torch.float64)
        d1 = torch.cat([exact(list(itertools.product((slope, 1.0), repeat=m))), between])
        whole = identity(n) + outer @ (d1[:, :, None] * inner)
        d = 1 - (1 - slope) * (torch.rand(n, generator=generator) < 0.5).double()
        d = d if d.any() else torch.ones_like(d)
        singular = torch.linalg.svdvals(whole * d)[:, : int(d.count_nonzero())]
        assert singular.max() <= upper * (1 + 1e-12) and singular.min() >= lower - 1e-12 * upper
        product = torch.linalg.matrix_norm(inner, 2).item() * torch.linalg.matrix_norm(outer, 2).item()
        middle = torch.linalg.svdvals(identity(n) + (1 + slope) / 2 * outer @ inner)
        moved = (torch.linalg.svdvals(whole) - middle).abs().max()
        assert moved <= (1 - slope) / 2 * product + 1e-12 * upper
        assert upper <= (1 + product) * (1 + 1e-12)
        assert lower >= (abs(slope) or 1) * (1 - product) - 1e-12 * upper


@pytest.mark.claim("All regions", "All regions of a branch", verdict="holds")
@given(st.floats(0.01, 3), st.floats(-1, 1), st.floats(-1, 0), st.floats(-2, 2), st.floats(-2, 2), slopes)
def test_a_rotation_attains_both_bounds_and_one_unit_those_of_a_branch(s, cosine, slope, first, second, of_branch):
    weight = s * exact([[cosine, -math.sqrt(1 - cosine**2)], [math.sqrt(1 - cosine**2), cosine]])
    lower, upper = layers.all_regions(weight, slope)
    singular = torch.linalg.svdvals(region(weight, exact([1, slope]), torch.ones(2).double()))
    assert singular[0].item() == pytest.approx(upper, rel=1e-7)
    if s < 1 or (slope == 0 and 1 + cosine * s > 1e-3):  # else the bound may be zero
        assert singular[1].item() * (abs(slope) or 1) == pytest.approx(lower, abs=1e-7)
    lower, upper = layers.all_regions_of_branch(exact([[first]]), exact([[second]]), of_branch)
    ends = [1 + d1 * first * second for d1 in (of_branch, 1.0)]
    assert upper == pytest.approx(max(map(abs, ends)) if sum(ends) >= 0 else -min(ends))
    if sum(ends) >= 0:
        assert lower == pytest.approx((abs(of_branch) or 1) * max(min(ends), 0), abs=1e-12)


@pytest.mark.claim("All regions at random", verdict="holds")
@pytest.mark.parametrize("law", rm.LAWS)
def test_the_bound_for_all_regions_tends_to_its_limit_and_a_norm_is_beyond_as_rarely_as_stated(law):
    for n, excess in itertools.product((1, 3, 10, 30), (0.3, 1.0, 2.0)):
        norm = torch.linalg.svdvals(draw(n, 1000))[:, 0]
        assert not rejected(norm > 2 * math.sqrt(n) + excess, math.exp(-(excess**2) / 2))
    for r, slope in itertools.product((0.8, 2.0), (-0.5, 0.0, 0.3)):
        limit = layers.all_regions_limit(r, slope)
        if math.isfinite(limit):
            lower, upper = layers.all_regions(random_layers(400, 1, r, law)[0], slope)
            assert upper / lower == pytest.approx(limit, rel=0.05)
    printed = (math.sqrt(5.125) + 0.125**0.5) / (math.sqrt(3.125) - 0.125**0.5)
    assert layers.all_regions_limit(2.0) == pytest.approx(printed, rel=1e-12)


@pytest.mark.claim("Riedi section 6.3, weights below 1/(3n)", verdict="holds")
@given(st.integers(1, 6), seeds, st.floats(0, 1))
def test_small_entries_bound_the_condition_number_by_two_for_relus_too(n, seed, share):
    rng = np.random.default_rng(seed)
    weight = torch.from_numpy(rng.uniform(-1, 1, (n, n))) / (3 * n)
    if seed % 3 == 0:
        weight = weight.sign() / (3 * n)
    off = min(int(share * n), n - 1)
    for d1 in (gaussian(seed, n).sign(), switches(n, off, rng)):
        assert condition(region(weight, d1, gaussian(seed + 1, n).sign())) <= 2 * (1 + 1e-12)
        assert condition(region(weight, d1, switches(n, off, rng)), n - off) <= 2 * (1 + 1e-12)


@pytest.mark.claim("Riedi section 6.3, mini-batches", verdict="fails")
@given(st.floats(1e-5, 0.9), st.integers(2, 7))
def test_the_smallest_counterexample_to_the_bound_for_a_batch(epsilon, n):
    """From five units on, as Corollary 40 has it, all but the second are active on both samples."""
    weight, bias = exact([[1], [-1]] + [[1]] * (n - 2)), exact([0, (1 + epsilon) / 2] + [0] * (n - 2))
    residual = Layer(torch.zeros(n, n).double(), torch.zeros(n).double(), 0.0, 1.0)
    f = layer_factors([Layer(weight, bias, 0.0), residual], 0, exact([[1], [epsilon]]))
    assert all(condition(x, int(d.sum())) == 1 for x, d in zip(f.product, f.slopes, strict=True))
    assert f.slopes[:, 1].tolist() == [0, 1] and f.slopes.sum() == 2 * n - 1
    factor = torch.einsum("gkm,gd->gkmd", f.product, f.z).flatten(0, 1).flatten(1)
    assert condition(factor).item() == pytest.approx(math.sqrt(1 + epsilon**2) / epsilon, rel=1e-9)
    means = f.z.square().mean(0)
    assert means.max() == means.min()


@pytest.mark.claim("All regions of a batch", verdict="holds")
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), slopes, seeds)
def test_a_batch_is_within_the_bounds_of_what_its_units_see(samples, n, d, slope, seed):
    on = torch.rand(samples, n, generator=torch.Generator().manual_seed(seed)) < 0.6
    on[0, 0] = True
    diagonals = torch.ones(samples, n).double().where(on, slope)
    matrices, z = gaussian(seed + 1, samples, n + seed % 3, n), gaussian(seed + 2, samples, d)
    kept = [torch.linalg.svdvals(matrix[:, slopes != 0]) for matrix, slopes in zip(matrices, diagonals, strict=True)]
    ratio = max(s[0] for s in kept if len(s)) / min(s[-1] for s in kept if len(s))
    whole = torch.cat([torch.linalg.svdvals(slopes[:, None] * z) for slopes in diagonals.mT]).sort(descending=True)[0]
    rank = int((whole > 1e-9 * whole[0]).sum())  # over all directions that units see
    factor = torch.einsum("gkm,gd->gkmd", matrices * diagonals[:, None], z).flatten(0, 1).flatten(1)
    singular = torch.linalg.svdvals(factor)
    assert (singular[rank:] < 1e-9 * singular[0]).all()
    found, seen = singular[0] / singular[rank - 1], whole[0] / whole[rank - 1]
    assert seen / ratio * (1 - 1e-6) <= found <= seen * ratio * (1 + 1e-6)
    if slope == -1:
        assert seen.item() == pytest.approx(condition(z).item(), rel=1e-6)

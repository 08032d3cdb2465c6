"""Riedi 2022, section 6.2 and 6.3, statements 33 to 42: residual layers with random weights.

Statements in probability are tested by their frequency: a test fails if an exact binomial test rejects the stated
probability at the level 1e-6. Seeds are fixed.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import eigh_tridiagonal
from scipy.stats import binomtest, ks_2samp

from gnlib.chapters.piecewise_linear_maps import landscape
from gnlib.chapters.piecewise_linear_maps.one_layer import layer_factors
from gnlib.chapters.random_layers import bounds as layers
from gnlib.chapters.random_layers import matrices as rm
from gnlib.chapters.shared.piecewise_linear import Layer
from gnlib.chapters.shared.skips import kaiming_skip_limits
from tests.strategies import exact, gaussian, hundreds, matrices, orthogonal, seeds

LEVEL = 1e-6
GRID = np.linspace(-10, 8, 721)
TRACY_WIDOM = rm.tracy_widom_cdf(GRID)
squares_of_any_kind = st.integers(1, 5).flatmap(lambda n: matrices(n, n))
scales = st.sampled_from([0.02, 0.1, 0.3, 0.6, 1.0, 3.0])
slopes = st.sampled_from([-1.0, -0.4, 0.0, 0.05, 0.3, 0.9, 1.0])


def draw(n, count, law="gaussian", seed=0):
    return rm.draw(n, count, law, generator=torch.Generator().manual_seed(seed))


def random_layers(n, count, r, law="gaussian", seed=0):
    """Layers with entries of standard deviation 1 / (r sqrt(8 n))."""
    return draw(n, count, law, seed) / (r * math.sqrt(8 * n))


def eye(n):
    return torch.eye(n, dtype=torch.float64)


def distance(sample, cdf=None):
    """Kolmogorov's distance of a sample from a distribution function; Tracy's and Widom's if none is given."""
    sample = np.sort(np.asarray(sample))
    at = np.interp(sample, GRID, TRACY_WIDOM) if cdf is None else cdf(sample)
    steps = np.arange(len(sample) + 1) / len(sample)
    return max((at - steps[:-1]).max(), (steps[1:] - at).max())


def noise(count):
    """What the distance of a sample from its own law exceeds with probability LEVEL at most (Massart)."""
    return math.sqrt(math.log(2 / LEVEL) / (2 * count))


def rejected(failures, probability):
    """Say whether that many failures are too many for events of at most that probability."""
    failures = failures.tolist()
    return binomtest(sum(failures), len(failures), min(probability, 1), "greater").pvalue < LEVEL


def condition(matrix, rank=None):
    """Largest over smallest singular value, of the first `rank` of them."""
    singular = torch.linalg.svdvals(matrix)
    last = singular[..., -1 if rank is None else rank - 1]
    return (singular[..., 0] / last).where(last > 0, torch.inf)


def region(weight, d1, d):
    """(D1 W + I) D for diagonals given as vectors."""
    return (d1[..., :, None] * weight + eye(weight.shape[-1])) * d[..., None, :]


def switches(n, off, generator):
    """The diagonal of a ReLU with that many units off, at random."""
    diagonal = torch.ones(n, dtype=torch.float64)
    diagonal[torch.randperm(n, generator=generator)[:off]] = 0
    return diagonal


def attack(excess, rows, columns, starts=4, steps=100):
    """Look for a matrix for which `excess` is positive, by gradient ascent; return the largest value found."""
    largest = -math.inf
    for seed in range(starts):
        matrix = (gaussian(seed, rows, columns) * 10.0 ** (-(seed % 4) / 2) / rows).requires_grad_()
        optimizer = torch.optim.Adam([matrix], lr=0.02)
        for _ in range(steps):
            value = excess(matrix)
            largest = max(largest, value.item())
            optimizer.zero_grad()
            (-value).backward()
            if not torch.isfinite(matrix.grad).all():  # two singular values have met
                break
            optimizer.step()
    return largest


def two_hundred(n):
    """Return 200 n x n matrices: random, structured, singular, of norms from 0.02 to 3, and close to minus one."""
    g, q = gaussian(n, 40, n, n), torch.linalg.qr(gaussian(n + 10, 40, n, n)).Q
    sizes = torch.logspace(-1.7, 0.5, 40, dtype=torch.float64)[:, None, None]
    return torch.cat(
        [g * sizes / n**0.5, q * sizes, (g - g.mT) * sizes, g[..., :1] @ g[..., :1, :] * sizes, 0.5 * g - eye(n)]
    )


def parts(matrix):
    """s_1, s_n and the extreme eigenvalues of M + M^T, differentiable."""
    singular, tau = torch.linalg.svdvals(matrix), torch.linalg.eigvalsh(matrix + matrix.mT)
    return singular[0], singular[-1], tau[0], tau[-1]


# Theorem 33 and what surrounds it


@pytest.mark.claim("Riedi Theorem 33", verdict="holds if")
@pytest.mark.parametrize("law, bias", [("gaussian", 0.08), ("uniform", 0.14)])
def test_over_the_root_of_two_the_largest_eigenvalue_follows_tracy_and_widom(law, bias):
    count, (centre, scale) = 1500, rm.symmetric_scaling(60)
    t = rm.extremes(draw(60, count, law))
    for values in (t.tau_largest, -t.tau_smallest):
        assert distance((values - centre) / scale) < bias + noise(count)
        assert distance((values - centre) / scale * 2**0.5) > 0.2


@pytest.mark.claim("Riedi Theorem 33", verdict="holds if")
def test_very_large_gaussian_matrices_by_their_tridiagonal_form():
    n, count, generator = 4000, 700, np.random.default_rng(0)
    centre, scale = rm.symmetric_scaling(n)
    edge = 400  # eigenvectors of the edge live in the first n^(1/3) rows, times a few
    values = []
    for _ in range(count):  # Dumitriu and Edelman (2002)
        diagonal = 2 * generator.standard_normal(edge)
        off = math.sqrt(2) * np.sqrt(generator.chisquare(np.arange(n - 1, n - edge, -1)))
        top = eigh_tridiagonal(diagonal, off, eigvals_only=True, select="i", select_range=(edge - 1, edge - 1))
        values.append((top[0] - centre) / scale)
    assert distance(values) < 0.02 + noise(count)
    assert distance(np.array(values) * 2**0.5) > 0.2


@pytest.mark.claim("Riedi Eq. 106", verdict="holds if")
def test_an_interval_that_shrinks_by_that_rate_has_a_probability_below_one():
    n, count = 60, 1500
    z = ((rm.extremes(draw(n, count)).tau_largest - math.sqrt(8 * n)) * n ** (1 / 6)).numpy()
    for constant in (1.0, 3.0, 6.0):
        low, high = np.interp([-constant / 2**0.5, constant / 2**0.5], GRID, TRACY_WIDOM)
        share = np.mean(np.abs(z) <= constant)
        assert abs(share - (high - low)) < 0.1 + 2 * noise(count)
        assert (share > 0.95) == (constant == 6)


@pytest.mark.claim("Riedi Eq. 107 and 108", verdict="holds")
@pytest.mark.parametrize("law", rm.LAWS)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_both_ends_have_one_law_and_are_not_independent(n, law):
    t = rm.extremes(draw(n, 3000, law))
    assert ks_2samp(t.tau_largest.numpy(), -t.tau_smallest.numpy()).pvalue > LEVEL
    correlation = torch.corrcoef(torch.stack([t.tau_largest, -t.tau_smallest]))[0, 1].item()
    assert correlation < -0.1  # that of three thousand independent pairs is closer to zero


@pytest.mark.claim("Riedi Theorem 34", verdict="holds if")
@hundreds
@given(st.integers(1, 6), seeds, st.sampled_from(rm.LAWS), st.floats(0, 3))
def test_entries_with_a_density_give_distinct_singular_values_that_grow_as_stated(n, seed, law, skip):
    matrix = draw(n, 1, law, seed)[0]
    before, after = torch.linalg.svdvals(matrix), torch.linalg.svdvals(matrix + skip * eye(n))
    layer = rm.extremes(matrix)
    assert n == 1 or (before[:-1] - before[1:]).min() > 1e-12 * before[0]
    growth, slack = after**2 - before**2, 1e-12 * (before[0] + skip) ** 2
    assert (growth >= skip * layer.tau_smallest + skip**2 - slack).all()
    assert (growth <= skip * layer.tau_largest + skip**2 + slack).all()


@pytest.mark.claim("Riedi Theorem 34", verdict="holds if")
@pytest.mark.parametrize("g", [-1.3, 0.2, 2.0])
def test_jointly_gaussian_entries_without_a_density_can_repeat_singular_values(g):
    singular = torch.linalg.svdvals(g * eye(2))  # g times the identity, g normal
    assert singular[0] == singular[1]


@pytest.mark.claim("Riedi Theorem 34", verdict="holds if")
def test_a_negative_skip_breaks_the_growth():
    matrix, skip = exact([[1, 0], [0, -0.5]]), -1.0
    before, after = torch.linalg.svdvals(matrix), torch.linalg.svdvals(matrix + skip * eye(2))
    lower = skip * rm.extremes(matrix).tau_smallest + skip**2
    assert (after**2 - before**2)[1] == -0.25 and lower == 2


@pytest.mark.claim("Riedi Theorem 35", verdict="holds")
def test_the_largest_singular_value_and_its_law():
    count, (mu, q) = 1500, rm.singular_scaling(60)
    y = (torch.linalg.svdvals(draw(60, count))[:, 0] ** 2 - mu) / q
    assert distance(y) < 0.03 + noise(count)
    assert distance(y / 2**0.5) > 0.1 and distance(y * 2**0.5) > 0.1
    family = draw(900, 1)[0]  # one infinite family, larger and larger pieces
    errors = [abs(torch.linalg.matrix_norm(family[:n, :n], 2).item() / math.sqrt(n) - 2) for n in (20, 900)]
    assert errors[1] < 0.03


@pytest.mark.claim("Riedi Theorem 35, bounds of its constants", verdict="holds")
def test_the_constants_are_below_their_simple_bounds():
    for n in (*range(2, 400), 10**4, 10**8):
        mu, q = rm.singular_scaling(n)
        steps = (q, math.sqrt(4 * n) * 2 ** (1 / 3) * (n - 1) ** (-1 / 6), 2**1.5 * n ** (1 / 3))
        assert mu < 4 * n and steps[0] < steps[1] <= steps[2] * (1 + 1e-12)


@pytest.mark.claim("Riedi Figure 5, ratio", verdict="holds")
def test_the_ratio_tends_to_the_root_of_two():
    spread = []
    for n, count in ((10, 2000), (40, 1000), (250, 30)):
        layer = rm.extremes(draw(n, count))
        ratio = layer.tau_largest / layer.largest
        assert ratio.max() <= 2
        spread.append((ratio / 2**0.5 - 1).abs().mean().item())
        if n == 10:
            assert ((ratio > 0.6 * 2**0.5) & (ratio < 1.4 * 2**0.5)).double().mean() > 0.98
    assert spread[0] > 2 * spread[1] > 2 * spread[2] and spread[2] < 0.02


# Lemma 36


@pytest.mark.claim("Riedi Lemma 36, i", verdict="holds")
@hundreds
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


@pytest.mark.claim("Riedi Eq. 113", verdict="fails")
def test_eq_113_fails_for_about_half_of_all_matrices_of_size_one_hundred():
    n, count = 100, 400
    mu, q = rm.singular_scaling(n)
    s = torch.linalg.svdvals(draw(n, count))[:, 0]
    y = (s**2 - mu) / q
    fails = s**2 / (4 * n) > 1 + y / (2**0.5 * n ** (2 / 3))
    assert binomtest(int(fails.sum()), count, 0.3, "greater").pvalue < LEVEL
    assert (y[fails] < 0).all()


@pytest.mark.claim("Eq. 113, repaired", verdict="holds")
@pytest.mark.parametrize("n", [2, 3, 4, 10, 100, 10**4])
def test_with_the_positive_part_eq_113_holds(n):
    mu, q = rm.singular_scaling(n)
    squares = torch.linspace(0, 16 * n, 5000, dtype=torch.float64)
    y = (squares - mu) / q
    assert (squares / (4 * n) <= 1 + y.clamp_min(0) / (2**0.5 * n ** (2 / 3))).all()


@pytest.mark.claim("Riedi Lemma 36, iii and iv", verdict="holds")
@hundreds
@given(squares_of_any_kind, scales)
def test_the_bounds_of_the_condition_number_for_any_matrix(weight, scale):
    weight = scale * weight
    s1, sn, low, high = (value.item() for value in parts(weight))
    singular, bounds = torch.linalg.svdvals(weight + eye(len(weight))), layers.riedi_lemma_36(rm.extremes(weight))
    kappa = condition(weight + eye(len(weight))).item()
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


@pytest.mark.claim("Riedi Lemma 36, iii and iv", verdict="holds")
@pytest.mark.parametrize("n", range(1, 6))
def test_a_thousand_condition_numbers_are_within_the_bounds(n):
    weights = two_hundred(n)
    kappa, bounds = condition(weights + eye(n)), layers.riedi_lemma_36(rm.extremes(weights))
    for bound in bounds:
        assert (kappa <= bound * (1 + 1e-9))[kappa < 1e8].all()
        assert 20 <= bound.isfinite().sum()
    assert (bounds.sharper <= torch.minimum(bounds.norm, bounds.symmetric) * (1 + 1e-9)).all()


@pytest.mark.claim("Riedi Lemma 36, iii and iv", verdict="holds")
@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("which", ["norm", "symmetric", "sharper"])
def test_no_optimiser_finds_a_matrix_beyond_the_bounds(n, which):
    def excess(matrix):
        singular = torch.linalg.svdvals(matrix + eye(n))
        s1, _, low, high = parts(matrix)
        top = (s1**2 + high + 1).log() / 2
        if which == "norm":
            bottom, room = (1 - s1).clamp_min(1e-12).log(), s1
        elif which == "symmetric":
            bottom, room = (low + 1).clamp_min(1e-12).log() / 2, -low
        else:
            bottom, room = (1 + low / 2).clamp_min(1e-12).log(), -low / 2
        value = (singular[0] / singular[-1]).log() - top + bottom
        return value if room < 0.98 else value * 0 - (room - 0.98)  # outside its assumption, walk back

    largest = attack(excess, n, n)
    assert -0.5 < largest <= 1e-9  # it comes near, and not beyond


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
        layer, singular = rm.extremes(weights), torch.linalg.svdvals(weights + eye(n))
        ratios = (
            singular[:, -1] ** 2 / (layer.smallest**2 + layer.tau_smallest + 1),
            (layer.largest**2 + layer.tau_largest + 1) / singular[:, 0] ** 2,
            layers.riedi_lemma_36(layer).symmetric / condition(weights + eye(n)),
        )
        for ratio, limit in zip(ratios, limits, strict=True):
            assert ratio.min() > 1 and ratio.mean().item() == pytest.approx(limit, abs=tolerance)


@pytest.mark.claim("Limit of one layer with a skip", verdict="holds")
@pytest.mark.parametrize("r", [0.6, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("law", rm.LAWS)
def test_the_condition_number_tends_to_its_limit(r, law):
    errors = [
        abs(condition(random_layers(n, count, r, law) + eye(n)).mean().item() / layers.skip_condition_limit(r) - 1)
        for n, count in ((10, 300), (400, 4))
    ]
    assert errors[1] < min(0.05, errors[0])
    assert layers.skip_condition_limit(r) < layers.riedi_theorem_38(r).sharper


# Corollary 37 and the exceptional events


@pytest.mark.claim("Riedi Corollary 37", verdict="holds")
@hundreds
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
        assert ks_2samp(a.numpy(), b.numpy()).pvalue > LEVEL


@pytest.mark.claim("Riedi Corollary 37, equal in distribution", verdict="holds if")
def test_the_signs_that_an_input_gives_do_not():
    weights = draw(1, 1000)[:, 0, 0]
    signed = weights.sign() * weights  # the input 1: D1 W = |W|
    assert (signed > 0).all() and rejected(weights < 0, 0.3)
    weights, z = random_layers(6, 3000, 2), torch.ones(6, dtype=torch.float64)
    signs = (weights @ z).sign()
    plain, signed = rm.extremes(weights), rm.extremes(signs[:, :, None] * weights)
    assert ks_2samp(plain.tau_largest.numpy(), signed.tau_largest.numpy()).pvalue < LEVEL


@pytest.mark.claim("Riedi Eq. 119 and 120", verdict="holds")
def test_exceptional_events_are_rare_and_vanish():
    layer = rm.extremes(random_layers(5, 100_000, 2))
    assert (layer.tau_smallest > -1).all() and (layer.largest < 1).all()
    shares = []
    for n, count in ((5, 4000), (20, 2000), (80, 500)):
        layer = rm.extremes(random_layers(n, count, 1.02))
        shares.append([(layer.tau_smallest <= -1).double().mean().item(), (layer.largest >= 1).double().mean().item()])
    assert shares[0][0] > shares[1][0] > shares[2][0] and shares[0][0] > 0.03
    assert all(norm <= tau for tau, norm in shares)


# Theorem 38


@pytest.mark.claim("Riedi Theorem 38", verdict="holds")
def test_the_limits_of_the_bounds():
    assert layers.riedi_theorem_38(2).symmetric == pytest.approx(1.8028, abs=5e-5)
    assert layers.riedi_theorem_38(2).norm == pytest.approx(1.9719, abs=5e-5)
    for law, r in itertools.product(rm.LAWS, (1.5, 2.0, 3.0)):
        errors = []
        for n, count in ((10, 200), (400, 3)):
            bounds, limits = (
                layers.riedi_lemma_36(rm.extremes(random_layers(n, count, r, law))),
                layers.riedi_theorem_38(r),
            )
            errors.append([abs(b.median().item() / limit - 1) for b, limit in zip(bounds, limits, strict=True)])
        assert max(errors[1]) < 0.03 and max(errors[1]) < max(errors[0])


@pytest.mark.claim("Riedi Theorem 38", verdict="holds")
@pytest.mark.parametrize("r", [1.001, 1.5, 2.0, 3.0, 30.0])
def test_the_limits_are_what_the_limits_of_their_parts_give(r):
    s, tau = 1 / (2**0.5 * r), 1 / r
    top = math.sqrt(s**2 + tau + 1)
    expected = (top / (1 - s), top / math.sqrt(1 - tau), top / (1 - tau / 2))
    assert layers.riedi_theorem_38(r) == pytest.approx(expected, rel=1e-12)


# The condition number of 3


@pytest.mark.claim("Riedi introduction, condition number of 3", verdict="holds if")
@hundreds
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
@hundreds
@given(st.floats(1, 100), st.floats(1e-3, 10))
def test_the_limit_of_one_layer_is_below_three_for_all_r_above_one(r, more):
    assert layers.skip_condition_limit(r + more) < layers.skip_condition_limit(r) < 2.852
    assert layers.skip_condition_limit(0.957) > 3 > layers.skip_condition_limit(0.959)


@pytest.mark.claim("Riedi introduction, condition number of 3", verdict="holds if")
@pytest.mark.parametrize("law", rm.LAWS)
@pytest.mark.parametrize("r", [1.02, 1.15, 1.3, 2.0])
def test_large_layers_are_below_three(r, law):
    n, generator = 120, torch.Generator().manual_seed(0)
    weights = random_layers(n, 40, r, law)
    signs = torch.rand(2, n, generator=generator, dtype=torch.float64).sub(0.5).sign()
    kappa = condition(region(weights, *signs))
    assert kappa.max() < 3
    relus = [condition(region(w, torch.ones(n).double(), switches(n, 40, generator)), n - 40) for w in weights]
    assert max(relus) < 3


@pytest.mark.claim("Riedi introduction, condition number of 3", verdict="holds if")
@hundreds
@given(st.integers(2, 4), st.integers(1, 5), seeds, slopes, st.floats(1, 4))
def test_one_skip_over_several_layers_is_below_three(depth, n, seed, slope, r):
    """Layers of the norm that large ones have, with activities at random and those of an input."""
    generator = torch.Generator().manual_seed(seed)
    weights = [w / torch.linalg.matrix_norm(w, 2) / (2**0.5 * r) for w in gaussian(seed, depth, n, n)]
    z = gaussian(seed + 1, n)
    d = switches(n, seed % n, generator)
    for dependent in (True, False):
        branch, inner = eye(n), z
        for w in weights:
            inner = w @ inner
            on = inner > 0 if dependent else torch.rand(n, generator=generator) < 0.5
            slopes_here = torch.ones(n).double().where(on, slope)
            branch, inner = slopes_here[:, None] * (w @ branch), slopes_here * inner
        for matrix, rank in ((branch + eye(n), n), ((branch + eye(n)) * d, int(d.sum()))):
            assert condition(matrix, rank) <= 3 * (1 + 1e-12)


@pytest.mark.claim("Riedi introduction, condition number of 3", verdict="holds if")
def test_several_layers_with_skips_of_their_own_are_not():
    layer = torch.diag(exact([-0.6, 0])) + eye(2)
    assert condition(layer).item() == pytest.approx(2.5) and condition(layer @ layer).item() == pytest.approx(6.25)
    for r, depth in ((1.35, 4), (2.0, 8), (4.0, 24)):
        product, kappas = eye(100), []
        for w in random_layers(100, depth, r):
            product = (w + eye(100)) @ product
            kappas.append(condition(product).item())
        assert layers.riedi_theorem_38(r).symmetric < 3 < kappas[-1] and kappas == sorted(kappas)


# Theorem 39 and Corollary 40


def relu_layers(seed, count=1000):
    """Random cases of Theorem 39: a layer, its activations and the numbers in the theorem."""
    generator = torch.Generator().manual_seed(seed)

    def whole(low, high):
        return int(torch.randint(low, high + 1, (), generator=generator))

    for _ in range(count):
        n = whole(5, 14)
        off = whole(0, n - 1)
        off_residual = whole(0 if off else 1, n)
        theta = 4 + (2 * math.sqrt(n) - 4) * (1 - torch.rand((), generator=generator).item())
        factor = 1 + 10.0 ** (4 * torch.rand((), generator=generator).item() - 3)
        k = rm.draw(n, 1, generator=generator)[0]
        yield k, switches(n, off_residual, generator), switches(n, off, generator), off, off_residual, theta, factor


@pytest.mark.claim("Riedi Theorem 39", verdict="holds if")
def test_the_bounds_for_relus_hold_as_often_as_stated():
    failures, failures_2, allowed = [], [], []
    for k, d1, d, off, off_residual, theta, factor in relu_layers(0):
        n = len(k)
        nu = off + off_residual - off * off_residual / n
        assert 1 <= nu <= n and nu == pytest.approx((n**2 - (n - off) * (n - off_residual)) / n)
        r = factor * (2 + 2 * nu + theta)
        kappa = condition(region(k / (r * math.sqrt(8 * n)), d1, d), n - off).item()
        bound, failure = layers.riedi_theorem_39(n, off, off_residual, r, theta)
        assert bound == pytest.approx(2 * (1 + 1 / r) / (1 - (2 + 2 * nu + theta) / r))
        assert failure == pytest.approx(2 * math.exp(-(theta**2) / 2))
        failures.append(kappa > bound)
        allowed.append(failure)
        prime = factor  # above one
        r = factor * (prime + prime * nu + theta)
        weight = k / (r * math.sqrt(8 * n))
        kappa, s1 = condition(region(weight, d1, d), n - off).item(), torch.linalg.svdvals(weight)[0].item()
        failures_2.append(kappa > 2 * (1 + s1) / (1 - (prime + prime * nu + theta) / r))
    assert not rejected(torch.tensor(failures), max(allowed))
    assert not rejected(torch.tensor(failures_2), max(allowed))


@pytest.mark.claim("Riedi Theorem 39", verdict="holds if")
def test_nothing_is_left_if_the_whole_trained_layer_is_off():
    assert not region(random_layers(6, 1, 99)[0], torch.ones(6).double(), torch.zeros(6).double()).any()
    with pytest.raises(ValueError, match="fewer than n of the trained layer"):
        layers.riedi_theorem_39(6, 6, 0, 99, 4.5)


@pytest.mark.claim("Riedi Theorem 39", verdict="holds if")
@hundreds
@given(st.integers(5, 400), st.floats(0, 1), st.floats(0, 1), st.floats(1e-6, 1), st.floats(1e-6, 50))
def test_a_norm_of_a_third_is_enough_and_larger_ones_are_rarer_than_stated(n, share, residual, part, beyond):
    off, off_residual = int(share * (n - 1)), max(int(residual * n), 1)
    theta = 4 + part * (2 * math.sqrt(n) - 4)
    least = 2 + 2 * (off + off_residual - off * off_residual / n) + theta
    r = least * (1 + beyond)
    bound, failure = layers.riedi_theorem_39(n, off, off_residual, r, theta)
    assert (1 + 1 / 3) / (1 - 1 / 3) <= bound
    assert math.exp(-((r * math.sqrt(8 * n) / 3 - 2 * math.sqrt(n)) ** 2) / 2) <= failure


@pytest.mark.claim("Riedi Theorem 39, smaller weights for more units off", verdict="fails")
@pytest.mark.parametrize("off, off_residual", [(1, 0), (20, 20), (39, 40), (0, 40)])
def test_the_same_weights_do_whatever_units_are_off(off, off_residual):
    n, generator = 40, torch.Generator().manual_seed(0)
    for weight in random_layers(n, 30, 2):
        kappa = condition(region(weight, switches(n, off_residual, generator), switches(n, off, generator)), n - off)
        assert kappa < 2 < layers.riedi_theorem_39(n, off, off_residual, 1e6, 4.5).bound


@pytest.mark.claim("Riedi Corollary 40", verdict="fails")
def test_the_bounds_on_singular_values_for_relus_hold_as_often_as_stated():
    failures, allowed = [], []
    for k, d1, d, off, _, theta, factor in relu_layers(1):
        n = len(k)
        r = factor * (2 + 2 * n + theta)
        lower, upper = layers.riedi_corollary_40(n, r, theta)
        assert (lower, upper) == pytest.approx(((1 - (2 + 2 * n + theta) / r) / 2, 1 + 1 / r))
        singular = torch.linalg.svdvals(region(k / (r * math.sqrt(8 * n)), d1, d))[: n - off]
        failures.append(bool((singular[-1] < lower) or (singular[0] > upper)))
        allowed.append(2 * math.exp(-(theta**2) / 2))
    assert not rejected(torch.tensor(failures), max(allowed))


@pytest.mark.claim("Riedi Corollary 40", verdict="fails")
def test_units_that_are_off_bring_zeros_below_any_lower_bound():
    n, off = 6, 2
    d = switches(n, off, torch.Generator().manual_seed(0))
    singular = torch.linalg.svdvals(region(random_layers(n, 1, 30)[0], torch.ones(n).double(), d))
    assert (singular[n - off :] < 1e-12).all() and singular[n - off - 1] > 0.9


@pytest.mark.claim("Riedi Corollary 40", verdict="fails")
@pytest.mark.parametrize("n", [2, 3, 4])
def test_a_norm_below_one_over_r_is_enough_in_all_regions_at_once(n):
    corners = exact(list(itertools.product((0.0, 1.0), repeat=n)))
    for k in draw(n, 20):
        for r in (1.5, 8.0, 30.0):
            weight = k / torch.linalg.svdvals(k)[0] / r  # the largest that the event allows
            for d in corners[1:]:
                singular = torch.linalg.svdvals(region(weight, corners, d))[:, : int(d.sum())]
                assert singular.max() <= 1 + 1 / r + 1e-12 and singular.min() >= 1 - 1 / r - 1e-12


@pytest.mark.claim("Riedi Theorem 39", verdict="holds if")
@pytest.mark.claim("Riedi Corollary 40", verdict="fails")
@pytest.mark.parametrize("off, off_residual", [(1, 1), (0, 2), (2, 0)])
def test_no_optimiser_finds_a_layer_of_small_norm_beyond_the_bounds_for_relus(off, off_residual):
    n, theta, generator = 5, 4.4, torch.Generator().manual_seed(0)
    d1, d = switches(n, off_residual, generator), switches(n, off, generator)
    nu = off + off_residual - off * off_residual / n
    r, r_40 = 2 + 2 * nu + theta + 0.5, 2 + 2 * n + theta + 0.5

    def singular(theta, r):
        weight = theta / torch.linalg.matrix_norm(theta, 2) / r  # the largest that the event allows
        return torch.linalg.svdvals(region(weight, d1, d))[: n - off]

    bound, (lower, upper) = (
        layers.riedi_theorem_39(n, off, off_residual, r, theta).bound,
        layers.riedi_corollary_40(n, r_40, theta),
    )
    kappa = attack(lambda w: singular(w, r)[0] / singular(w, r)[-1], n, n, starts=2)
    assert 1.1 < kappa <= (1 + 1 / r) / (1 - 1 / r) * (1 + 1e-9) < bound
    assert -0.01 < attack(lambda w: singular(w, r_40)[0] - upper, n, n, starts=2) <= 1e-12
    assert attack(lambda w: lower - singular(w, r_40)[-1], n, n, starts=2) <= 0


# Ours: all regions


@pytest.mark.claim("All regions", verdict="holds")
@hundreds
@given(squares_of_any_kind, scales, slopes, seeds)
def test_no_region_is_beyond_the_bounds(weight, scale, slope, seed):
    weight, n = scale * weight, len(weight)
    lower, upper = layers.all_regions(weight, slope)
    random = torch.rand(2, 40, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    corners = exact(list(itertools.product((slope, 1.0), repeat=n)))
    d = 1 - (1 - slope) * (random[1, 0] < 0.5).double()
    d = d if d.any() else torch.ones_like(d)
    between = slope + (1 - slope) * random[0]
    singular = torch.linalg.svdvals(region(weight, torch.cat([corners, between]), d))[:, : int(d.count_nonzero())]
    assert singular.max() <= upper * (1 + 1e-12) and singular.min() >= lower - 1e-12 * upper


@pytest.mark.claim("All regions", verdict="holds")
@pytest.mark.claim("All regions of a branch", verdict="holds")
@pytest.mark.parametrize("n", range(1, 6))
def test_all_regions_of_a_thousand_layers_are_within_the_bounds(n):
    says = [0, 0]
    for i, (first, second) in enumerate(itertools.pairwise([*two_hundred(n), eye(n)])):
        slope = (-1.0, -0.3, 0.0, 0.05, 0.4)[i % 5]
        corners = exact(list(itertools.product((slope, 1.0), repeat=n)))
        for j, (bounds, outer) in enumerate(
            [(layers.all_regions(first, slope), eye(n)), (layers.all_regions_of_branch(first, second, slope), second)]
        ):
            singular = torch.linalg.svdvals(eye(n) + outer @ (corners[:, :, None] * first))
            singular = singular if slope == 0 else torch.cat([singular, singular * abs(slope)])  # D is slope times I
            assert singular.max() <= bounds.upper * (1 + 1e-12)
            assert singular.min() >= bounds.lower - 1e-12 * bounds.upper
            says[j] += bounds.lower > 0
    assert min(says) >= 50


@pytest.mark.claim("All regions", verdict="holds")
@pytest.mark.parametrize("slope", [-1.0, -0.3, 0.0, 0.1, 0.6])
@pytest.mark.parametrize("end", ["lower", "upper"])
def test_no_optimiser_finds_a_region_beyond_the_bounds(slope, end):
    n, (centre, half) = 3, ((1 + slope) / 2, (1 - slope) / 2)
    for corner in ((1.0, slope, 1.0), (slope, slope, 1.0)):
        d1 = exact(corner)

        def excess(matrix, d1=d1):
            singular, (s1, _, low, high) = (
                torch.linalg.svdvals(region(matrix, d1, torch.ones(n).double())),
                parts(matrix),
            )
            if end == "upper":
                return singular[0] - (1 + centre * high + (centre * s1) ** 2).clamp_min(0).sqrt() - half * s1
            rest = 1 + centre * low
            a = s1
            if slope > 0:
                a = torch.minimum(s1, half * (rest.clamp_min(1e-12) / slope).sqrt() / centre)
            value = (rest + (centre * a) ** 2).clamp_min(1e-12).sqrt() - half * a - singular[-1]
            return value if value > -1 and rest > 0.02 else low + 0 * value  # where nothing follows, walk back

        largest = attack(excess, n, n, starts=3)
        assert largest <= 1e-9


@pytest.mark.claim("All regions", verdict="holds")
@hundreds
@given(st.floats(0.01, 3), st.floats(-1, 1), st.floats(-1, 0))
def test_a_rotation_attains_both_bounds(s, cosine, slope):
    weight = s * exact([[cosine, -math.sqrt(1 - cosine**2)], [math.sqrt(1 - cosine**2), cosine]])
    lower, upper = layers.all_regions(weight, slope)
    singular = torch.linalg.svdvals(region(weight, exact([1, slope]), torch.ones(2).double()))
    assert singular[0].item() == pytest.approx(upper, rel=1e-7)
    if s < 1 or (slope == 0 and 1 + cosine * s > 1e-3):  # else the bound may be zero
        assert singular[1].item() * (abs(slope) or 1) == pytest.approx(lower, abs=1e-7)


@pytest.mark.claim("All regions", verdict="holds")
@hundreds
@given(squares_of_any_kind, scales, slopes)
def test_the_lower_bound_is_the_minimum_that_it_is_said_to_be(weight, scale, slope):
    s1, _, low, _ = (value.item() for value in parts(scale * weight))
    centre, half = (1 + slope) / 2, (1 - slope) / 2
    least, rest = 1 - s1, 1 + centre * low
    if rest > 0:
        a = torch.linspace(0, s1, 20001, dtype=torch.float64)
        least = max(least, ((rest + (centre * a) ** 2).sqrt() - half * a).min().item())
    expected = max(least, 0) * (abs(slope) or 1)
    assert layers.all_regions(scale * weight, slope).lower == pytest.approx(expected, abs=1e-6 * (1 + s1))


@pytest.mark.claim("All regions", verdict="holds")
@hundreds
@given(squares_of_any_kind, scales)
def test_it_contains_lemma_36_and_the_norm(weight, scale):
    weight = scale * weight
    s1, _, low, high = (value.item() for value in parts(weight))
    linear, relu, absolute = (layers.all_regions(weight, slope) for slope in (1.0, 0.0, -1.0))
    assert absolute == pytest.approx((max(1 - s1, 0), 1 + s1), abs=1e-12)
    assert linear.upper == pytest.approx(math.sqrt(max(1 + high + s1**2, 0)), abs=1e-7)
    assert linear.lower == pytest.approx(max(math.sqrt(max(1 + low, 0)), 1 - s1, 0), abs=1e-7)
    assert relu.lower >= max(1 - s1, 0) and relu.upper <= 1 + s1 + 1e-12
    closed = [(math.sqrt(max(4 + 2 * tau + s1**2, 0)) + sign * s1) / 2 for tau, sign in ((low, -1), (high, 1))]
    assert relu == pytest.approx((max(closed[0], 0), closed[1]), abs=1e-9)
    assert (relu.lower > 1e-9) == (low > -2 + 4e-9 * max(1, s1)) or abs(low + 2) < 1e-6


# Ours: all regions of a branch


@st.composite
def branches(draw):
    """Draw the two matrices of a branch, of any inner width, hostile ones among them."""
    n, m = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    return draw(scales) * draw(matrices(m, n)), draw(scales) * draw(matrices(n, m))


@pytest.mark.claim("All regions of a branch", verdict="holds")
@hundreds
@given(branches(), slopes, seeds)
def test_no_region_of_a_branch_is_beyond_the_bounds(branch, slope, seed):
    (inner, outer), n = branch, branch[0].shape[1]
    m, random = len(inner), torch.rand(40, n + len(inner), generator=torch.Generator().manual_seed(seed)).double()
    lower, upper = layers.all_regions_of_branch(inner, outer, slope)
    d1 = torch.cat([exact(list(itertools.product((slope, 1.0), repeat=m))), slope + (1 - slope) * random[:, :m]])
    whole = eye(n) + outer @ (d1[:, :, None] * inner)
    d = 1 - (1 - slope) * (random[0, m:] < 0.5).double()
    d = d if d.any() else torch.ones_like(d)
    singular = torch.linalg.svdvals(whole * d)[:, : int(d.count_nonzero())]
    assert singular.max() <= upper * (1 + 1e-12) and singular.min() >= lower - 1e-12 * upper
    product = torch.linalg.matrix_norm(inner, 2).item() * torch.linalg.matrix_norm(outer, 2).item()
    middle = torch.linalg.svdvals(eye(n) + (1 + slope) / 2 * outer @ inner)
    moved = (torch.linalg.svdvals(whole) - middle).abs().max()
    assert moved <= (1 - slope) / 2 * product + 1e-12 * upper
    assert upper <= (1 + product) * (1 + 1e-12)
    assert lower >= (abs(slope) or 1) * (1 - product) - 1e-12 * upper


@pytest.mark.claim("All regions of a branch", verdict="holds")
@pytest.mark.parametrize("slope", [-1.0, -0.3, 0.0, 0.4])
@pytest.mark.parametrize("end", ["lower", "upper"])
def test_no_optimiser_finds_a_branch_beyond_the_bounds(slope, end):
    found = []
    for d1 in exact(list(itertools.product((slope, 1.0), repeat=2))):

        def excess(weight, d1=d1):
            inner, outer = weight[:, :2], weight[:, 2:]
            product = parts(inner)[0] * parts(outer)[0]
            middle = torch.linalg.svdvals(eye(2) + (1 + slope) / 2 * outer @ inner)
            singular = torch.linalg.svdvals(eye(2) + outer @ (d1[:, None] * inner))
            if end == "upper":
                return singular[0] - middle[0] - (1 - slope) / 2 * product
            value = middle[-1] - (1 - slope) / 2 * product - singular[-1]
            return value if middle[-1] > (1 - slope) / 2 * product else -product  # where nothing follows, walk back

        found.append(attack(excess, 2, 4, starts=2))
    assert -0.02 < max(found) <= 1e-9  # it comes near, and not beyond


@pytest.mark.claim("All regions of a branch", verdict="holds")
@hundreds
@given(st.floats(-2, 2), st.floats(-2, 2), slopes)
def test_one_unit_attains_the_bounds_of_a_branch(first, second, slope):
    lower, upper = layers.all_regions_of_branch(exact([[first]]), exact([[second]]), slope)
    ends = [1 + d1 * first * second for d1 in (slope, 1.0)]
    assert upper == pytest.approx(max(map(abs, ends)) if sum(ends) >= 0 else -min(ends))
    if sum(ends) >= 0:
        assert lower == pytest.approx((abs(slope) or 1) * max(min(ends), 0), abs=1e-12)


@pytest.mark.claim("All regions of a branch", verdict="holds")
@hundreds
@given(branches(), seeds)
def test_below_norm_one_the_skip_improves_a_branch_of_larger_condition_number(branch, seed):
    (inner, outer), n = branch, branch[0].shape[1]
    generator = torch.Generator().manual_seed(seed)
    d = switches(n, int(torch.randint(0, n, (), generator=generator)), generator)
    branch = outer @ (switches(len(inner), seed % (len(inner) + 1), generator)[:, None] * inner)
    norm, kept = torch.linalg.matrix_norm(branch, 2), int(d.sum())
    without, with_skip = condition(branch * d, kept), condition((branch + eye(n)) * d, kept)
    if norm < 1:
        assert with_skip <= (1 + norm) / (1 - norm) * (1 + 1e-9)
        if without >= (1 + norm) / (1 - norm):
            assert with_skip <= without * (1 + 1e-9)


@pytest.mark.claim("All regions at random", verdict="holds")
@pytest.mark.parametrize("n", [1, 3, 10, 30])
@pytest.mark.parametrize("excess", [0.3, 1.0, 2.0])
def test_the_norm_is_beyond_two_roots_as_rarely_as_stated(n, excess):
    norm = torch.linalg.svdvals(draw(n, 1000))[:, 0]
    assert not rejected(norm > 2 * math.sqrt(n) + excess, math.exp(-(excess**2) / 2))


@pytest.mark.claim("All regions at random", verdict="holds")
@pytest.mark.parametrize("law", rm.LAWS)
def test_the_bound_for_all_regions_tends_to_its_limit(law):
    for r, slope in itertools.product((0.8, 2.0), (-0.5, 0.0, 0.3)):
        limit = layers.all_regions_limit(r, slope)
        if math.isfinite(limit):
            lower, upper = layers.all_regions(random_layers(400, 1, r, law)[0], slope)
            assert upper / lower == pytest.approx(limit, rel=0.05)
    assert layers.all_regions_limit(2.0) == pytest.approx(
        (math.sqrt(5.125) + 0.125**0.5) / (math.sqrt(3.125) - 0.125**0.5), rel=1e-12
    )


@pytest.mark.claim("Riedi section 6.3, weights below 1/(3n)", verdict="holds")
@hundreds
@given(st.integers(1, 6), seeds, st.floats(0, 1))
def test_small_entries_bound_the_condition_number_by_two_for_relus_too(n, seed, share):
    generator = torch.Generator().manual_seed(seed)
    weight = (2 * torch.rand(n, n, generator=generator, dtype=torch.float64) - 1) / (3 * n)
    if seed % 3 == 0:
        weight = weight.sign() / (3 * n)
    off = min(int(share * n), n - 1)
    for d1 in (gaussian(seed, n).sign(), switches(n, off, generator)):
        signs, mask = gaussian(seed + 1, n).sign(), switches(n, off, generator)
        assert condition(region(weight, d1, signs)) <= 2 * (1 + 1e-12)
        assert condition(region(weight, d1, mask), n - off) <= 2 * (1 + 1e-12)


@pytest.mark.claim("Riedi section 6.3, weights below 1/(3n)", verdict="holds")
@pytest.mark.parametrize("n", [1, 2, 7])
def test_without_a_skip_small_entries_bound_nothing(n):
    matrix = torch.diag(1 / (n * torch.arange(1, n + 1).double()))
    assert matrix.max() <= 1 / n and condition(matrix).item() == pytest.approx(n)


# Batches


def of_a_batch(products, z, diagonals):
    """kappa of the form of a batch, and the root of that of what its units see, over all directions that are seen."""
    seen = [torch.linalg.svdvals(d[:, None] * z) for d in diagonals.mT]
    whole = torch.cat(seen).sort(descending=True).values
    rank = int((whole > 1e-9 * whole[0]).sum())
    factor = torch.einsum("gkm,gd->gkmd", products, z).flatten(0, 1).flatten(1)
    singular = torch.linalg.svdvals(factor)
    assert len(singular) == rank or (singular[rank:] < 1e-9 * singular[0]).all()
    return (singular[0] / singular[rank - 1]).item(), (whole[0] / whole[rank - 1]).item()


def gain(matrix, diagonal):
    """The extreme norms of M x over the unit vectors x on the units that a diagonal keeps."""
    singular = torch.linalg.svdvals(matrix[:, diagonal != 0])
    return (singular[-1].item(), singular[0].item()) if len(singular) else (math.inf, 0.0)


@pytest.mark.claim("Riedi section 6.3, mini-batches", verdict="fails")
@hundreds
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


@pytest.mark.claim("Riedi section 6.3, mini-batches", verdict="fails")
@pytest.mark.parametrize("n", [5, 9])
def test_a_layer_that_obeys_the_bound_breaks_it_for_a_batch(n):
    theta = 2 * math.sqrt(n)
    r = 2 * (2 + 2 * n + theta)
    lower, upper = layers.riedi_corollary_40(n, r, theta)
    weight, bias = torch.ones(n, 1).double(), torch.zeros(n).double()
    weight[1], bias[1] = -1, 0.5
    for w in random_layers(n, 100, r):
        residual = Layer(w, torch.zeros(n).double(), 0.0, 1.0)
        f = layer_factors([Layer(weight, bias, 0.0), residual], 0, exact([[1], [1e-3]]))
        for x, d in zip(f.product, f.slopes, strict=True):
            low, high = gain(x, d)
            assert lower <= low and high <= upper
        assert of_a_batch(f.product, f.z, f.slopes)[0] > 100 * upper / lower


@pytest.mark.claim("All regions of a batch", verdict="holds")
@hundreds
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), slopes, seeds)
def test_a_batch_is_within_the_bounds_of_what_its_units_see(samples, n, d, slope, seed):
    generator = torch.Generator().manual_seed(seed)
    on = torch.rand(samples, n, generator=generator) < 0.6
    on[0, 0] = True
    diagonals = torch.ones(samples, n).double().where(on, slope)
    matrices, z = gaussian(seed + 1, samples, n + seed % 3, n), gaussian(seed + 2, samples, d)
    low, high = zip(*map(gain, matrices, diagonals), strict=True)
    found, seen = of_a_batch(matrices * diagonals[:, None], z, diagonals)
    ratio = max(high) / min(low)
    assert seen / ratio * (1 - 1e-6) <= found <= seen * ratio * (1 + 1e-6)
    if slope == -1:
        assert seen == pytest.approx(condition(z).item(), rel=1e-6)


@pytest.mark.claim("All regions of a batch", verdict="holds")
@hundreds
@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 3), st.floats(0.8, 20), seeds)
def test_the_regions_of_a_network_bound_its_batches(samples, n, d, r, seed):
    trained = Layer(gaussian(seed, n, d), gaussian(seed + 1, n), 0.0)
    residual = Layer(random_layers(n, 1, r, seed=seed)[0], gaussian(seed + 2, n), 0.0, 1.0)
    f = layer_factors([trained, residual], 0, gaussian(seed + 3, samples, d))
    lower, upper = layers.all_regions(residual.weight)
    if lower > 0 and f.slopes.any():
        found, seen = of_a_batch(f.product, f.z, f.slopes)
        assert seen * lower / upper * (1 - 1e-6) <= found <= seen * upper / lower * (1 + 1e-6)


@pytest.mark.claim("All regions of a batch", verdict="holds")
@hundreds
@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 3), seeds)
def test_without_weights_the_bounds_of_a_batch_are_attained(samples, n, d, seed):
    trained = Layer(gaussian(seed, n, d), gaussian(seed + 1, n), 0.0)
    residual = Layer(torch.zeros(n, n).double(), torch.zeros(n).double(), 0.0, 1.0)
    f = layer_factors([trained, residual], 0, gaussian(seed + 2, samples, d))
    if f.slopes.any():
        found, seen = of_a_batch(f.product, f.z, f.slopes)
        assert found == pytest.approx(seen, rel=1e-6)
        form = landscape.quadratic_form(f.product, f.z)
        blocks = [(d[:, None] * f.z).mT @ (d[:, None] * f.z) / samples for d in f.slopes.mT]
        torch.testing.assert_close(form, torch.block_diag(*blocks), rtol=0, atol=1e-12 * form.norm().item())


# Lemma 41 and Theorem 42


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
@hundreds
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
@pytest.mark.parametrize("r", [1.05, 2.0])
@pytest.mark.parametrize("n", [2, 5, 20])
def test_on_random_layers_it_does(n, r):
    weights, signs = random_layers(n, 1000, r), draw(n, 2000, seed=2)[:, 0].sign().view(1000, 2, n)
    norm, without = torch.linalg.svdvals(weights)[:, 0], condition(weights)
    with_skip = condition(region(weights, signs[:, 0], signs[:, 1]))
    holds = (norm < 1) & (without >= (1 + norm) / (1 - norm))
    assert holds.double().mean() > 0.3 and (without >= with_skip * (1 - 1e-9))[holds].all()


@pytest.mark.claim("Riedi Theorem 42", verdict="holds")
def test_without_eq_152_a_skip_can_hurt():
    weight = 0.5 * orthogonal(0, 4)
    assert condition(weight) < 1 + 1e-9 and condition(weight + eye(4)) > 1.1

"""Riedi 2022, sections 6.2 and 6.3, statements 39 and 40: ReLUs and other slopes, all regions, branches and batches."""

import itertools
import math

import numpy as np
import pytest
import torch
from gnbook.piecewise_linear_maps.one_layer import layer_factors
from gnbook.random_layers import bounds as layers
from gnbook.random_layers import matrices as rm
from gnbook.shared.piecewise_linear import Layer
from hypothesis import given
from hypothesis import strategies as st

from tests.gnbook.random_layers.helpers import (
    condition,
    draw,
    random_layers,
    region,
    rejected,
    scales,
    slopes,
    squares_of_any_kind,
)
from tests.oracles import identity
from tests.strategies import exact, gaussian, instances, matrices, seeds


def switches(n, off, rng):
    """The diagonal of a ReLU with that many units off, at random."""
    return torch.from_numpy(rng.permutation(n) >= off).double()


@pytest.mark.claim("Riedi Theorem 39", verdict="holds if")
@pytest.mark.claim("Riedi Corollary 40", verdict="fails")
def test_the_bounds_for_relus_hold_as_often_as_stated():
    rng, broken, allowed = np.random.default_rng(0), [], 0
    for _ in range(1000):
        n = int(rng.integers(5, 15))
        off = int(rng.integers(n))
        off_residual = int(rng.integers(0 if off else 1, n + 1))
        theta, factor = 4 + (2 * math.sqrt(n) - 4) * (1 - rng.random()), 1 + 10.0 ** rng.uniform(-3, 1)
        k, d1, d = torch.from_numpy(rng.standard_normal((n, n))), switches(n, off_residual, rng), switches(n, off, rng)
        nu = off + off_residual - off * off_residual / n
        assert 1 <= nu <= n and nu == pytest.approx((n**2 - (n - off) * (n - off_residual)) / n)

        def kept(r, k=k, d1=d1, d=d, off=off, n=n):
            """The extreme singular values that are not zero by D, and the norm, of a layer of that size."""
            weight = k / (r * math.sqrt(8 * n))
            singular = torch.linalg.svdvals(region(weight, d1, d))[: n - off]
            return singular[0], singular[-1], torch.linalg.matrix_norm(weight, 2)

        r, r_second, r_40 = (
            factor * least for least in (2 + 2 * nu + theta, factor * (1 + nu) + theta, 2 + 2 * n + theta)
        )
        bound, failure = layers.riedi_theorem_39(n, off, off_residual, r, theta)
        assert bound == pytest.approx(2 * (1 + 1 / r) / (1 - 1 / factor))
        assert failure == pytest.approx(2 * math.exp(-(theta**2) / 2))
        (top, bottom, _), (second, least, norm), (largest, smallest, _) = map(kept, (r, r_second, r_40))
        within_40 = (1 - 1 / factor) / 2 <= smallest and largest <= 1 + 1 / r_40
        second_bound = 2 * (1 + norm) / (1 - 1 / factor)  # with r' = factor, above one
        broken.append([top / bottom > bound, second / least > second_bound, not within_40])
        allowed = max(allowed, failure)
    assert not any(rejected(torch.tensor(found), allowed) for found in zip(*broken, strict=True))


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


@pytest.mark.claim("All regions", verdict="holds")
@pytest.mark.claim("All regions of a branch", verdict="holds")
@instances
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


@pytest.mark.claim("All regions", verdict="holds")
@pytest.mark.claim("All regions of a branch", verdict="holds")
@instances
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
@pytest.mark.parametrize("n", [1, 3, 10, 30])
def test_the_norm_is_beyond_two_roots_as_rarely_as_stated(n):
    norm = torch.linalg.svdvals(draw(n, 1000))[:, 0]
    for excess in (0.3, 1.0, 2.0):
        assert not rejected(norm > 2 * math.sqrt(n) + excess, math.exp(-(excess**2) / 2))


@pytest.mark.claim("All regions at random", verdict="holds")
@pytest.mark.parametrize("law", rm.LAWS)
def test_the_bound_for_all_regions_tends_to_its_limit(law):
    for r, slope in itertools.product((0.8, 2.0), (-0.5, 0.0, 0.3)):
        limit = layers.all_regions_limit(r, slope)
        if math.isfinite(limit):
            lower, upper = layers.all_regions(random_layers(400, 1, r, law)[0], slope)
            assert upper / lower == pytest.approx(limit, rel=0.05)
    printed = (math.sqrt(5.125) + 0.125**0.5) / (math.sqrt(3.125) - 0.125**0.5)
    assert layers.all_regions_limit(2.0) == pytest.approx(printed, rel=1e-12)


@pytest.mark.claim("Riedi section 6.3, weights below 1/(3n)", verdict="holds")
@instances
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
@instances
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
@instances
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
